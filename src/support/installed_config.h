// The options in force together with what is derived from them. Internal to support: others read config().
#pragma once

#include <kiln/config.h>

namespace kiln {

struct InstalledConfig {
  Config config;
  unsigned log_topics = 0;  // bit t: Topic t is logged
};

/// Reads the environment at first use; afterwards one atomic load. Throws UserError on a bad environment.
const InstalledConfig& installed_config();

}  // namespace kiln
