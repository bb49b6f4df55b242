// What the host CPU is, as this build can find out: from LLVM, or without it.
#pragma once

#include <map>
#include <string>

namespace kiln::cpu {

/// Features by LLVM's names, on or off; ordered, since keys are made of them.
std::map<std::string, bool> read_host_features();
/// Whether the C library has vector functions that compiled code may call.
bool has_vector_math();

}  // namespace kiln::cpu
