// The disk cache that programs use under the options in force, opened for looking.
#pragma once

#include "cache/disk_cache.h"

#include <kiln/config.h>

namespace kiln::tool {

inline engine::DiskCacheOptions disk_cache_options() {
  using Mode = engine::DiskCacheOptions::Mode;
  const Config& c = config();
  engine::DiskCacheOptions options;
  options.mode = c.cache == "off" ? Mode::Off : c.cache == "ro" ? Mode::ReadOnly : Mode::ReadWrite;
  options.directory = c.cache_dir;
  options.max_bytes = c.cache_max;
  return options;
}

}  // namespace kiln::tool
