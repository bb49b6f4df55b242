// Names of kernels, and the sources that a person edited (KILN_OVERRIDE_DIR).
#pragma once

#include "device/compiler.h"
#include "support/hash128.h"

#include <optional>
#include <string>

namespace kiln::engine {

/// Of the function that a kernel becomes.
std::string symbol_of(const Hash128& key);
/// The last part of the names of a kernel's dumps, which tells it from others: the first digits of its key.
std::string short_name(const Hash128& key);

/// The file LABEL-<short_name><extension> of config().override_dir, whatever its label. Nothing when the
/// option is not set, the compiler takes no edited sources, or there is no such file. CompileError for one
/// that cannot be read.
std::optional<device::EditedSource> edited_source(const Hash128& key, const device::Compiler& compiler);

}  // namespace kiln::engine
