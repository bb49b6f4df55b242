// A libnvrtc.so.13 whose machine is the host: gcc makes a shared library of a CUDA C source, and the fake
// driver runs it on the GPU that gpu.h has. So plans of a GPU are run, results and all, where there is none.
// It knows what most kernels use, but only the inline PTX that without_ptx has.
#include "device/cuda/fake_driver/gpu.h"

#include <nvrtc.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <regex>
#include <string>
#include <vector>

struct _nvrtcProgram {
  std::string source, image, log;
};

namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// This library, which kernels are linked against.
std::string own_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&kiln_fake_run), &info);
  return info.dli_fname;
}

/// Whether nothing but spaces stands before a place in its line, and at least one.
bool is_indented(const std::string& source, std::size_t at) {
  const std::size_t before = at == 0 ? source.npos : source.find_last_not_of(' ', at - 1);
  return before != source.npos && before + 1 < at && source[before] == '\n';
}

struct Replacement {
  std::regex pattern;
  std::string with;  // as std::match_results::format has it
};

/// What matches a pattern where the word stands, replaced. (A search for the pattern itself would take longer
/// than to compile most kernels.)
std::string replaced(const std::string& source, const std::string& word, const std::vector<Replacement>& list,
                     bool (*may_begin)(const std::string&, std::size_t) = nullptr) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = source.find(word); at != source.npos;
       at = source.find(word, std::max(at + 1, done))) {
    if (may_begin && !may_begin(source, at)) continue;
    std::smatch match;
    for (const Replacement& r : list) {
      if (!std::regex_search(source.begin() + static_cast<std::ptrdiff_t>(at), source.end(), match, r.pattern,
                             std::regex_constants::match_continuous))
        continue;
      out.append(source, done, at - done);
      out += match.format(r.with);
      done = at + static_cast<std::size_t>(match.length());
      break;
    }
  }
  return out.append(source, done);
}

/// Shared arrays begin unset in each block: each declaration within a function is followed by that.
std::string with_unset_memory(const std::string& source) {
  static const std::regex declaration(R"re((?:extern |alignas\(16\) )?__shared__ [^;]+;)re"),
      name(R"re([ ,*](\w+)(?=\[|;))re");
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = source.find("__shared__"); at != source.npos;
       at = source.find("__shared__", at + 1)) {
    std::size_t begin = source.rfind('\n', at) + 1;
    begin = source.find_first_not_of(' ', begin);
    std::smatch m;
    if (!is_indented(source, begin) ||
        !std::regex_search(source.begin() + static_cast<std::ptrdiff_t>(begin), source.end(), m, declaration,
                           std::regex_constants::match_continuous))
      continue;
    const std::size_t end = begin + static_cast<std::size_t>(m.length());
    out.append(source, done, end - done);
    done = end;
    const std::string text = m[0];
    for (std::sregex_iterator n(text.begin(), text.end(), name), last; n != last; ++n)
      out += " static unsigned " + (*n)[1].str() + "_seen; begins_unset(" + (*n)[1].str() + ", " +
             (*n)[1].str() + "_seen);";
  }
  return out.append(source, done);
}

/// Shared arrays begin where their elements may, as on a GPU, unless they say otherwise.
std::string with_least_alignment(const std::string& source) {
  static const std::vector<Replacement> array{
      {std::regex(R"re(__shared__ (\w+) (\w+)\[([^\]]+)\];)re"),
       "static struct { alignas(16) char before[sizeof($1)]; $1 at[$3]; } $2_memory; "
       "$1(&$2)[$3] = $2_memory.at;"}};
  return replaced(source, "__shared__", array, is_indented);
}

/// What there is instead of inline PTX.
std::vector<Replacement> made_of_ptx() {
  std::vector<Replacement> out;
  const auto add = [&](const std::string& pattern, const std::string& with) {
    out.push_back({std::regex(pattern), with});
  };
  add(R"re(asm volatile\("mov\.u64 %0, %globaltimer;" : "=l"\((\w+)\)\))re", "$1 = nanoseconds()");
  for (const char* name : {"rcp", "ex2", "lg2", "sqrt", "rsqrt"})
    add(std::string(R"re(asm\(")re") + name +
            R"re(\.approx(?:\.ftz)?\.f32 %0, %1;" : "=f"\((\w+)\) : "f"\((\w+)\)\))re",
        std::string("$1 = ptx_") + name + "($2)");
  add(R"re(asm\("cvt\.f32\.f16 %0, %1;" : "=f"\((\w+)\) : "h"\(([\w.]+)\)\))re", "$1 = ptx_widen($2)");
  add(R"re(asm\("cvt\.rn\.f16\.f(?:32|64) %0, %1;" : "=h"\(([\w.]+)\) : "[fd]"\((\w+)\)\))re",
      "$1 = ptx_narrow($2)");
  add(R"re(asm\("bfe\.s32 %0, %1, 0, (\d+);" : "=r"\((\w+)\) : "r"\((\w+)\)\))re", "$2 = ptx_extend($3, $1)");
  add(R"re(asm volatile\("ld\.relaxed\.gpu\.global\.u32 %0, \[%1\];" : "=r"\((\w+)\) : "l"\((\w+)\)\))re",
      "$1 = *$2");
  add(R"re(asm volatile\("st\.relaxed\.gpu\.global\.u32 \[%0\], %1;" ::"l"\((\w+)\), "r"\((\w+)\) : "memory"\))re",
      "*$1 = $2");
  struct Bytes {
    const char *name, *low, *high;
  };
  struct Rounding {
    const char *name, *function;
  };
  for (const auto& [type, low, high] : {Bytes{"s8", "-128", "127"}, Bytes{"u8", "0", "255"}})
    for (const auto& [rounding, function] : {Rounding{"rni", "rintf"}, Rounding{"rzi", "truncf"}})
      add(std::string(R"re(asm\("cvt\.)re") + rounding + R"re(\.sat\.)re" + type +
              R"re(\.f32 %0, %1;" : "=r"\((\w+)\) : "f"\((\w+)\)\))re",
          std::string("$1 = $2 != $2 ? 0 : int(fminf(fmaxf(") + function + "($2), " + low + "), " + high +
              "))");
  add(R"re(asm\("(max|min)\.NaN\.f32 %0, %1, %2;" : "=f"\((\w+)\) : "f"\((\w+)\), "f"\((\w+)\)\))re",
      "$2 = ptx_$1($3, $4)");
  return out;
}

/// Instructions of inline PTX that there are words for here.
std::string without_ptx(const std::string& source) {
  static const std::vector<Replacement> words = made_of_ptx();
  static const std::vector<Replacement> dynamic{{std::regex(R"re(extern __shared__ (\w+) (\w+)\[\];)re"),
                                                 "static $1 $2[(1 << 17) / sizeof($1)];"}};  // 128 KiB of it
  return replaced(replaced(source, "asm", words), "extern __shared__", dynamic);
}

/// What the driver calls: made for each kernel of the source.
std::string entries(const std::string& source) {
  static const std::string begin = "extern \"C\" __global__ void";
  static const std::regex head(R"re(\s+(?:__launch_bounds__\([\w, ]+\)\s+)?(\w+)\s*\()re");
  std::string out;
  for (std::size_t at = source.find(begin); at != source.npos; at = source.find(begin, at + 1)) {
    std::smatch m;
    if (!std::regex_search(source.begin() + static_cast<std::ptrdiff_t>(at + begin.size()), source.end(), m,
                           head, std::regex_constants::match_continuous))
      continue;
    const std::string name = m[1];
    out += "extern \"C\" __attribute__((visibility(\"default\"))) void* " + name +
           "__bind(void** params) { return bind_kernel(" + name + ", params); }\n";
  }
  return out;
}

}  // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult) { return "the fake compiler refuses"; }
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* n) {
  *n = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* list) {
  *list = 90;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int,
                               const char* const*, const char* const*) {
  *program = new _nvrtcProgram{source, {}, {}};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  // Tests clear Kiln's caches: gcc would make the same of the same source again.
  static std::mutex mutex;
  static auto& images =
      *new std::map<std::string, std::string>;  // threads may compile until the process ends
  {
    const std::lock_guard lock(mutex);
    if (const auto made = images.find(program->source); made != images.end()) {
      program->image = made->second;
      return NVRTC_SUCCESS;
    }
  }
  char folder[] = "/tmp/kiln-fake-nvrtc-XXXXXX";
  if (!mkdtemp(folder)) return NVRTC_ERROR_INTERNAL_ERROR;
  const std::string base = std::string(folder) + "/k";
  const bool hopper = program->source.find("copy_box") != std::string::npos;
  std::ofstream(base + ".cpp") << "#include \"device/cuda/fake_driver/" << (hopper ? "hopper" : "ptx")
                               << "_twin.h\"\n"
                               << without_ptx(with_least_alignment(with_unset_memory(program->source)))
                               << entries(program->source);
  // An access that is not aligned ends the program here, as it ends the context of a GPU.
  // Without -fno-gnu-unique the shared arrays of inline functions of equal names would be one in all modules.
  const std::string command =
      "gcc -std=c++20 -O1 -w -Wno-psabi -fPIC -shared -fno-gnu-unique -fvisibility=hidden "
      "-fno-exceptions -fno-rtti -fno-asynchronous-unwind-tables -fno-threadsafe-statics "
      "-ffp-contract=off -mfma -fsanitize=alignment "
      "-fsanitize-undefined-trap-on-error " KILN_FAKE_GPU_INCLUDES " -o " +
      base + ".so " + base + ".cpp '" + own_path() + "' -lm 2>" + base + ".log";
  const int status = std::system(command.c_str());
  program->log = contents(base + ".log");
  program->image = contents(base + ".so");
  for (const char* extension : {".cpp", ".so", ".log"}) unlink((base + extension).c_str());
  rmdir(folder);
  if (status != 0) return NVRTC_ERROR_COMPILATION;
  const std::lock_guard lock(mutex);
  images.emplace(program->source, program->image);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* n) {
  *n = program->image.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* to) {
  std::memcpy(to, program->image.data(), program->image.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t* n) {
  *n = 14;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram, char* to) {
  std::memcpy(to, ".version fake", 14);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* n) {
  *n = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* to) {
  std::memcpy(to, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}

}  // extern "C"
