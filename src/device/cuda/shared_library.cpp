#include "device/cuda/shared_library.h"

#include "support/env.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace kiln::cuda {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = environment_variable(name);
  return value ? value : "";
}

/// Where the code of this file was loaded from: the library Kiln is in, or the program it was linked into.
std::string own_directory() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&own_directory), &info) || !info.dli_fname) return "";
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? "" : file.parent_path().string();
}

/// Roots of installed toolkits, best first: what the user says, the default, then the newest.
std::vector<std::string> toolkit_roots() {
  std::vector<std::string> out;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = environment(name); !root.empty()) out.push_back(root);
  out.emplace_back("/usr/local/cuda");
  std::vector<std::string> versions;
  std::error_code error;
  for (fs::directory_iterator it("/usr/local", error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with("cuda-")) versions.push_back(it->path().string());
  std::sort(versions.rbegin(), versions.rend());
  out.insert(out.end(), versions.begin(), versions.end());
  return out;
}

}  // namespace

SharedLibrary open_first(std::span<const std::string> names) {
  SharedLibrary out;
  std::string complaint;
  for (const std::string& name : names) {
    // Local: another CUDA library of the process must not bind to this one's symbols.
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      out.handle = handle;
      link_map* map = nullptr;
      const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name;
      out.path = known ? map->l_name : name;
      return out;
    }
    const char* error = dlerror();
    const std::string_view text = error ? error : "";
    // A file that is there and cannot be loaded says more than one that is not there.
    const bool missing = text.find("No such file") != std::string_view::npos;
    if (complaint.empty() || (!missing && complaint.find("No such file") != std::string::npos))
      complaint = text;
  }
  out.failure = complaint.empty() ? "no name to look for" : complaint;
  return out;
}

std::vector<std::string> toolkit_candidates(std::span<const std::string> names) {
  std::vector<std::string> directories;
  if (const std::string own = own_directory(); !own.empty()) {
    directories.push_back(own);
    directories.push_back(own + "/../lib");
  }
  for (const std::string& root : toolkit_roots())
    for (const char* below : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/targets/sbsa-linux/lib"})
      directories.push_back(root + below);
  std::vector<std::string> out;
  for (const std::string& name : names) {
    out.push_back(name);
    for (const std::string& directory : directories) {
      std::error_code error;
      std::string file = directory + "/" + name;
      if (fs::exists(file, error)) out.push_back(std::move(file));
    }
  }
  return out;
}

std::vector<std::string> toolkit_program_directories() {
  std::vector<std::string> out;
  std::string path = environment("PATH");
  for (std::size_t from = 0; from < path.size();) {
    const std::size_t colon = std::min(path.find(':', from), path.size());
    if (colon > from) out.push_back(path.substr(from, colon - from));
    from = colon + 1;
  }
  for (const std::string& root : toolkit_roots()) out.push_back(root + "/bin");
  return out;
}

void* find_symbol(const SharedLibrary& library, const char* name) {
  return library.handle ? dlsym(library.handle, name) : nullptr;
}

}  // namespace kiln::cuda
