// kiln doctor: what this machine can do, what Kiln uses of it, and why not more.
#include "commands.h"
#include "disk_cache_options.h"

#include "device/cpu/host_limits.h"
#include "device/cpu/measure.h"
#include "device/cpu/pool.h"
#include "device/cpu/target.h"
#include "device/cpu/threads.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "library/cuda/blas.h"

#include <kiln/error.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>
#include <string>

namespace kiln::tool {
namespace {

using Json = nlohmann::ordered_json;

Json cpu_facts() {
  const cpu::CpuTarget target = cpu::host_target();
  Json out;
  out["model"] = cpu::host_model_name();
  out["llvm_name"] = cpu::host_cpu_name();
  out["features"] = cpu::host_feature_names();
  out["target"] = target.level;
  out["target_llvm_cpu"] = target.llvm_cpu;
  out["vector_bytes"] = target.vector_bytes;
  out["fma"] = target.fma;
  out["f16c"] = target.f16c;
  out["l1d_bytes"] = target.l1d_bytes;
  out["l2_bytes"] = target.l2_bytes;
  out["l3_bytes"] = target.l3_bytes;
  out["threads"] = cpu::thread_count();
  out["threads_reason"] = cpu::thread_count_reason();
  return out;
}

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Json cuda_facts() {
  const cuda::DriverReport& driver = cuda::driver();
  const cuda::NvrtcReport& nvrtc = cuda::nvrtc();
  Json out;
  out["usable"] = driver.available && nvrtc.available;
  out["driver"] = {{"found", driver.available},
                   {"reason", driver.reason},
                   {"library", driver.library},
                   {"cuda_version", driver.version ? cuda_version(driver.version) : ""}};
  out["compiler"] = {{"found", nvrtc.available},
                     {"reason", nvrtc.reason},
                     {"library", nvrtc.library},
                     {"version", nvrtc.available ? cuda::compiler_version() : ""},
                     {"architectures", nvrtc.architectures}};
  const cuda::BlasReport& blas = cuda::blas();
  out["cublaslt"] = {{"found", blas.available},
                     {"reason", blas.reason},
                     {"library", blas.library},
                     {"version", blas.version}};
  out["devices"] = Json::array();
  for (const cuda::DeviceInfo& d : driver.devices) {
    const cuda::Arch arch{d.major, d.minor};
    std::string target, refusal;
    try {
      if (nvrtc.available) target = cuda::compile_target(arch);
    } catch (const CompileError& e) {
      refusal = e.what();
    }
    out["devices"].push_back({{"name", d.name},
                              {"uuid", d.uuid},
                              {"arch", "sm_" + std::to_string(arch.number())},
                              {"compiled_for", target},
                              {"refusal", refusal},
                              {"sm_count", d.sm_count},
                              {"memory_bytes", d.memory_bytes},
                              {"l2_bytes", d.l2_bytes},
                              {"shared_per_block", d.shared_per_block_optin},
                              {"threads_per_sm", d.threads_per_sm},
                              {"registers_per_sm", d.registers_per_sm},
                              {"clusters", d.clusters}});
  }
  return out;
}

Json facts() {
  Json out;
  out["version"] = KILN_VERSION;
  out["llvm"] = cpu::llvm_version();
  out["cpu"] = cpu_facts();
  out["memory_limit_bytes"] = cpu::pool_statistics().limit;
  const cpu::Ceilings& c = cpu::ceilings();
  out["measured"] = {{"copy_gbps", c.copy_gbps},     {"read_gbps", c.read_gbps},
                     {"fma_gflops", c.fma_gflops},   {"copy_gbps_1", c.copy_gbps_1},
                     {"read_gbps_1", c.read_gbps_1}, {"fma_gflops_1", c.fma_gflops_1}};
  const engine::DiskCache cache(disk_cache_options());
  const engine::DiskCache::Stat s = cache.stat();
  out["disk_cache"] = {{"mode", config().cache},         {"directory", cache.directory()},
                       {"usable", cache.usable()},       {"reason", cache.reason()},
                       {"entries", s.entries},           {"bytes", s.bytes},
                       {"max_bytes", config().cache_max}};
  out["cuda"] = cuda_facts();
  return out;
}

std::string size_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}

std::string joined(const Json& list) {
  std::string out;
  for (const Json& item : list) out += (out.empty() ? "" : " ") + item.get<std::string>();
  return out;
}

/// Why kernels do not use wider registers than they do.
std::string width_text(const Json& cpu) {
  const int bits = cpu["vector_bytes"].get<int>() * 8;
  std::string out = std::to_string(bits) + "-bit vectors";
  if (cpu["target"] != "native") return out + " (KILN_CPU=" + cpu["target"].get<std::string>() + ")";
  if (bits < 512) out += bits < 256 ? " (the CPU has no AVX2)" : " (the CPU has no AVX-512)";
  return out + (cpu["fma"].get<bool>() ? ", fused multiply-add" : ", no fused multiply-add");
}

void line(const char* what, const std::string& value) { std::printf("%-12s %s\n", what, value.c_str()); }

void print_cuda(const Json& cuda) {
  const Json &driver = cuda["driver"], &compiler = cuda["compiler"];
  line("CUDA driver", driver["found"].get<bool>() ? "CUDA " + driver["cuda_version"].get<std::string>() +
                                                        ", " + driver["library"].get<std::string>()
                                                  : "not used: " + driver["reason"].get<std::string>());
  line("CUDA C", compiler["found"].get<bool>()
                     ? compiler["version"].get<std::string>() + ", " +
                           compiler["library"].get<std::string>() + ", sm_" +
                           std::to_string(compiler["architectures"].front().get<int>()) + " to sm_" +
                           std::to_string(compiler["architectures"].back().get<int>())
                     : "not used: " + compiler["reason"].get<std::string>());
  const Json& blas = cuda["cublaslt"];
  line("cuBLASLt", blas["found"].get<bool>()
                       ? blas["version"].get<std::string>() + ", " + blas["library"].get<std::string>()
                       : "not used: " + blas["reason"].get<std::string>());
  int index = 0;
  for (const Json& d : cuda["devices"]) {
    line(("cuda:" + std::to_string(index++)).c_str(),
         d["name"].get<std::string>() + " (" + d["arch"].get<std::string>() + "), " +
             std::to_string(d["sm_count"].get<int>()) + " SMs, " +
             size_text(d["memory_bytes"].get<double>()) + ", L2 " + size_text(d["l2_bytes"].get<double>()) +
             ", " + size_text(d["shared_per_block"].get<double>()) + " of shared memory a block");
    const std::string target = d["compiled_for"].get<std::string>(),
                      refusal = d["refusal"].get<std::string>();
    if (target.starts_with("compute_")) line("", "kernels are " + target + ", finished by the driver");
    if (!refusal.empty()) line("", "not used: " + refusal);
  }
}

void print(const Json& f) {
  const Json& cpu = f["cpu"];
  const Json& m = f["measured"];
  const Json& disk = f["disk_cache"];
  const std::string llvm = f["llvm"].get<std::string>();
  line("kiln",
       f["version"].get<std::string>() + (llvm == "none" ? ", built without compilers (KILN_COMPILERS=OFF): "
                                                           "kernels come from bundles, the vm runs the others"
                                                         : ", LLVM " + llvm));
  line("CPU", cpu["model"].get<std::string>() + " (" + cpu["llvm_name"].get<std::string>() + ")");
  line("features", joined(cpu["features"]));
  line("kernels use", width_text(cpu));
  line("threads", cpu["threads_reason"].get<std::string>());
  line("caches", "L1d " + size_text(cpu["l1d_bytes"].get<double>()) + ", L2 " +
                     size_text(cpu["l2_bytes"].get<double>()) + ", L3 " +
                     size_text(cpu["l3_bytes"].get<double>()));
  line("memory", size_text(f["memory_limit_bytes"].get<double>()) + " may be used");
  char text[160];
  std::snprintf(text, sizeof text,
                "copy %.1f GB/s, read %.1f GB/s, float32 multiply-add %.0f GFLOP/s (all threads)",
                m["copy_gbps"].get<double>(), m["read_gbps"].get<double>(), m["fma_gflops"].get<double>());
  line("measured", text);
  std::snprintf(
      text, sizeof text, "copy %.1f GB/s, read %.1f GB/s, float32 multiply-add %.0f GFLOP/s (one thread)",
      m["copy_gbps_1"].get<double>(), m["read_gbps_1"].get<double>(), m["fma_gflops_1"].get<double>());
  line("", text);
  line("disk cache", disk["usable"].get<bool>()
                         ? disk["directory"].get<std::string>() + " (" + disk["mode"].get<std::string>() +
                               ", " + std::to_string(disk["entries"].get<std::uint64_t>()) + " entries, " +
                               size_text(disk["bytes"].get<double>()) + " of " +
                               size_text(disk["max_bytes"].get<double>()) + ")"
                         : "not used: " + disk["reason"].get<std::string>());
  print_cuda(f["cuda"]);
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine can do, and why not more");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json] {
    const Json f = facts();
    if (*json) {
      std::printf("%s\n", f.dump(2).c_str());
    } else {
      print(f);
    }
  });
}

}  // namespace kiln::tool
