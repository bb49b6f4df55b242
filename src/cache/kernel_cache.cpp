#include "cache/kernel_cache.h"

#include "cache/background.h"
#include "cache/disk_cache.h"
#include "cache/failed_kernel.h"
#include "cache/gpu_source.h"
#include "codegen/cuda/cuda_c.h"
#include "device/cpu/jit.h"
#include "device/cpu/threads.h"
#include "device/cuda/driver.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/template_kernels.h"
#include "engine/lifetime.h"
#include "generator_hash.h"
#include "inspect/statistics.h"
#include "support/check.h"
#include "support/log.h"
#include "support/thread_own.h"

#include <kiln/config.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace kiln::engine {
namespace {

struct Slot {
  std::shared_ptr<const CachedKernel> kernel;  // null while being made
  Hash128 text;                                // KILN_CHECK=key: hash of the LLVM IR it was made from
  bool failed = false;
};

struct Cache {
  std::mutex mutex;
  std::condition_variable made;
  std::unordered_map<Hash128, std::shared_ptr<Slot>, HashOf> slots;
  std::mutex disk_mutex;
  std::unique_ptr<DiskCache> disk;
  std::string disk_settings;
};
Cache& cache() {
  static Cache* const c = new Cache;  // immortal, like the kernels
  return *c;
}

const cpu::CpuTarget& target() {
  struct Kept {
    cpu::CpuTarget target;
    std::string level = "?";
  };
  auto& [t, level] = thread_own<Kept, Kept>();
  if (level != config().cpu_target) {
    t = cpu::host_target();
    level = config().cpu_target;
  }
  return t;
}

bool on_gpu(const KernelRequest& r) { return r.device.kind == Device::Kind::Cuda; }

/// A request with what is found out for it once.
struct Wanted {
  KernelRequest& request;
  std::optional<GpuSource> edited;
  Hash128 key;  // of the code: the kernel's and the number of instances
  Hash128 slot;
};

Hash128 code_key(const KernelRequest& r) {
  if (r.instances == 1) return r.key;
  const std::uint64_t words[] = {r.key.lo, r.key.hi, static_cast<std::uint64_t>(r.instances)};
  return hash128(std::span<const std::uint64_t>(words));
}

/// A program may change the target, or who runs kernels, and a person a kernel: one kernel then has code for
/// each.
Hash128 slot_key(const KernelRequest& r, const Hash128& key, const std::optional<GpuSource>& edited) {
  if (on_gpu(r)) {
    const Hash128 text = edited ? hash128(edited->text) : Hash128{};
    return {key.lo ^ text.lo ^ (0x9e3779b97f4a7c15u * (1u + r.device.index)), key.hi ^ text.hi};
  }
  thread_local Hash128 of_target;
  thread_local std::string level = "?";
  if (level != config().cpu_target) {
    of_target = hash128(target().key());
    level = config().cpu_target;
  }
  return {key.lo ^ of_target.lo ^ static_cast<std::uint64_t>(config().tier), key.hi ^ of_target.hi};
}

DiskCache* disk() {
  Cache& c = cache();
  const Config& options = config();
  if (options.cache == "off") return nullptr;
  const std::string settings = cat(options.cache, '|', options.cache_dir, '|', options.cache_max);
  std::lock_guard lock(c.disk_mutex);
  if (!c.disk || c.disk_settings != settings) {
    DiskCacheOptions o;
    o.mode = options.cache == "ro" ? DiskCacheOptions::Mode::ReadOnly : DiskCacheOptions::Mode::ReadWrite;
    o.directory = options.cache_dir;
    o.max_bytes = options.cache_max;
    c.disk.release();  // another thread may still read through it; settings change a few times at most
    c.disk = std::make_unique<DiskCache>(std::move(o));
    c.disk_settings = settings;
  }
  return c.disk->usable() ? c.disk.get() : nullptr;
}

std::atomic<CompileHook> compile_hook{nullptr};

std::string entry_key(const KernelRequest& r, const Hash128& key) {
  if (!on_gpu(r)) return engine::disk_key(key, target());
  return engine::disk_key(key, cuda::compiler_version(), cuda::compile_target(arch_of(r.device)),
                          cuda::driver().version);
}

/// Makes a kernel's machine code. Holds everything that decides it, as options were when the kernel was asked
/// for.
struct Compilation {
  std::shared_ptr<CachedKernel> into;
  Device device;
  const kernel::Kernel* kernel;
  std::string symbol;
  std::optional<GpuSource> edited;  // compiled instead, and kept in memory alone
  cpu::CpuTarget target;
  DiskCache* disk = nullptr;
  std::string disk_key;

  using Time = std::chrono::steady_clock::time_point;

  /// `start`: when work on it began, which may be long after the kernel was asked for.
  void publish(const std::vector<std::uint8_t>& object, Time start) const {
    if (device.kind == Device::Kind::Cuda) {
      constexpr int kWaits = 90;  // the first architecture that can
      into->function = cuda::find_function(cuda::load_module(device.index, object), symbol);
      const bool waits = !edited || edited->text.find(codegen::kWaitForPrevious) != std::string::npos;
      into->function.waits_itself = waits && into->function.architecture >= kWaits;
    } else {
      into->executable.publish(cpu::load(object, symbol, *kernel));
    }
    count(Counter::CompileNs, static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start).count()));
  }

  void log_made(std::string_view how, Time start) const {
    if (!log_enabled(Topic::Cache)) return;
    const auto us =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start)
            .count();
    log(Topic::Cache, cat(into->name, " ", how, " in ", us, " us"));
  }

  bool from_disk() const {
    if (!disk) return false;
    const Time start = std::chrono::steady_clock::now();
    const auto object = disk->get(disk_key);
    if (!object) return false;
    try {
      publish(*object, start);
    } catch (const CompileError& e) {
      log(Topic::Cache, cat("entry of ", into->name, " cannot be linked, compiling again: ", e.what()));
      return false;
    }
    count(Counter::KernelsFromDisk);
    log_made("from disk", start);
    return true;
  }

  /// CompileError with what the compiler said and where the source is.
  void compile() const {
    const Time start = std::chrono::steady_clock::now();
    try {
      if (const CompileHook hook = compile_hook.load(std::memory_order_relaxed)) hook(*kernel);
      const std::vector<std::uint8_t> object = machine_code();
      publish(object, start);
      count(Counter::KernelsCompiled);
      log_made("compiled", start);
      if (disk) disk->put(disk_key, {reinterpret_cast<const char*>(object.data()), object.size()});
    } catch (const CompileError& e) {
      count(Counter::Fallbacks);
      throw CompileError(
          cat(e.what(), "; its source is in ",
              edited ? edited->name : write_failed_kernel(*kernel, symbol, device, into->instances)));
    }
  }

 private:
  std::vector<std::uint8_t> machine_code() const {
    if (device.kind == Device::Kind::Cpu) return cpu::compile(*kernel, symbol, target);
    const GpuSource source = edited ? *edited : generated_source(*kernel, into->key, into->instances);
    return cuda::compile(source.text, source.name, arch_of(device), gpu_options()).image;
  }
};

/// A template's image, of disk or compiled. Disk is given what was compiled.
std::vector<std::uint8_t> template_image(int index, const std::string& source, const std::string& name,
                                         bool fresh) {
  const cuda::Arch arch = arch_of(Device::cuda(index));
  DiskCache* const kept = disk();
  std::string key;
  if (kept) {
    key = engine::disk_key(hash128(source), cuda::compiler_version(), cuda::compile_target(arch),
                           cuda::driver().version);
    if (!fresh)
      if (auto image = kept->get(key)) {
        count(Counter::KernelsFromDisk);
        return std::move(*image);
      }
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::uint8_t> image = cuda::compile(source, name, arch).image;
  count(Counter::KernelsCompiled);
  count(Counter::CompileNs, static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start).count()));
  if (kept) kept->put(key, {reinterpret_cast<const char*>(image.data()), image.size()});
  return image;
}
[[maybe_unused]] const bool templates_are_kept = (cuda::set_image_maker(template_image), true);

/// As make(), for a job that has the kernel to itself.
void compile_later(Compilation c) {
  auto copy = std::make_shared<const kernel::Kernel>(*c.kernel);
  c.kernel = copy.get();
  const bool kept = c.disk != nullptr && config().cache == "rw";
  run_in_background(
      [c = std::move(c), copy = std::move(copy)] {
        try {
          c.compile();
          CompileTicket::guard_exit();
        } catch (const std::exception& e) {  // the vm goes on
          warn(cat(e.what(), "; ", c.into->name, " stays with the vm"));
        }
      },
      kept);
}

struct Made {
  std::shared_ptr<const CachedKernel> kernel;
  bool keep = true;  // false: the compiler failed, which may be different next time
};

/// From disk, from the compiler, or as bytecode.
Made make(const Wanted& wanted) {
  const KernelRequest& r = wanted.request;
  kernel::verify(*r.kernel);  // each kernel once: one that is not well formed would be wrong without a sign
  auto out = std::make_shared<CachedKernel>();
  out->key = wanted.key;
  out->instances = r.instances;
  out->name = r.kernel->label + "-" + short_name(wanted.key);
  const bool gpu = on_gpu(r);
  const Tier tier = gpu ? Tier::Jit : config().tier;
  if (!gpu && (tier == Tier::Vm || !cpu::has_compiler())) {
    out->executable.translate(*r.kernel, target());
    out->verdict = Verdict::Vm;
    return {out};
  }
  if (wanted.edited) warn(cat(out->name, " is made from ", wanted.edited->name));
  Compilation c{out,
                r.device,
                r.kernel,
                symbol_of(wanted.key),
                wanted.edited,
                gpu ? cpu::CpuTarget{} : target(),
                wanted.edited ? nullptr : disk(),
                {}};
  // opened by the thread that asks: the first one's end waits for compiles under way
  if (on_gpu(r)) cuda::nvrtc();
  if (c.disk) c.disk_key = entry_key(r, wanted.key);
  if (c.from_disk()) {
    out->verdict = Verdict::Disk;
    return {out};
  }
  if (tier == Tier::Jit) {
    try {
      c.compile();
      return {out};
    } catch (const CompileError& e) {
      if (gpu) throw;
      warn(cat(e.what(), "; running it by the vm"));
    }
  }
  out->executable.translate(*r.kernel, c.target);
  out->verdict = Verdict::Vm;
  if (tier == Tier::Jit) return {out, false};
  compile_later(std::move(c));
  return {out};
}

Hash128 text_hash(const KernelRequest& r) {
  return hash128(on_gpu(r) ? codegen::emit_cuda(*r.kernel, "k", r.instances)
                           : cpu::llvm_text(*r.kernel, "k", target()));
}

/// Finds or claims the slot of a key. Returns true when the caller must make the kernel.
bool claim(const Wanted& wanted, std::shared_ptr<Slot>& slot) {
  KernelRequest& r = wanted.request;
  Cache& c = cache();
  std::unique_lock lock(c.mutex);
  for (;;) {
    auto& entry = c.slots[wanted.slot];
    if (!entry) {
      entry = slot = std::make_shared<Slot>();
      return true;
    }
    slot = entry;
    c.made.wait(lock, [&] { return slot->kernel || slot->failed; });
    if (slot->kernel) {
      r.result = slot->kernel;
      r.verdict = Verdict::Memory;
      count(Counter::KernelHits);
      return false;
    }
    // it failed for another thread: try again here
    if (c.slots[wanted.slot] == slot) c.slots.erase(wanted.slot);
  }
}

/// Whoever waits for this kernel tries for itself.
void forget(const Wanted& wanted, const std::shared_ptr<Slot>& slot) {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  slot->failed = true;
  c.slots.erase(wanted.slot);
  c.made.notify_all();
}

void serve(KernelRequest& r) {
  std::shared_ptr<Slot> slot;
  const bool check = config().check_key;
  const Hash128 key = code_key(r);
  Wanted wanted{r, on_gpu(r) ? edited_source(key) : std::nullopt, key, {}};
  wanted.slot = slot_key(r, key, wanted.edited);
  if (!claim(wanted, slot)) {
    if (check && slot->text != Hash128{} && slot->text != text_hash(r))
      throw WrongKernel(
          cat("[cache] kernel ", r.result->name, " was found for a kernel that emits other code"));
    return;
  }
  Made made;
  try {
    made = make(wanted);
    if (check && made.kernel->verdict != Verdict::Vm) slot->text = text_hash(r);
  } catch (...) {
    forget(wanted, slot);
    throw;
  }
  r.result = made.kernel;
  r.verdict = made.kernel->verdict;
  if (!made.keep) return forget(wanted, slot);
  {
    std::lock_guard lock(cache().mutex);
    slot->kernel = made.kernel;
  }
  cache().made.notify_all();
  CompileTicket::guard_exit();
}

}  // namespace

void obtain(std::span<KernelRequest> requests) {
  // Before any claim: whoever waits for a kernel must find its maker free to finish. One for all: a worker
  // that waited for its own while the process exits or forks would keep this thread, and its ticket, for
  // ever.
  const CompileTicket ticket;
  if (requests.size() == 1) return serve(requests[0]);
  std::vector<std::function<void()>> jobs;
  for (KernelRequest& r : requests) jobs.emplace_back([&r] { serve(r); });
  cpu::run_jobs(jobs);
}

std::string disk_key(const Hash128& kernel, const cpu::CpuTarget& target) {
  return cat("cpu kernel ", kernel.hex(), "\ngenerator " KILN_GENERATOR_HASH "\ncompiler ",
             cpu::compiler_version(), "\ncpu ", target.key());
}

std::string disk_key(const Hash128& kernel, const std::string& compiler, const std::string& target,
                     int driver) {
  return cat("cuda kernel ", kernel.hex(), "\ngenerator " KILN_GENERATOR_HASH "\ncompiler ", compiler,
             "\ntarget ", target, target.starts_with("compute_") ? cat("\ndriver ", driver) : std::string());
}

void set_compile_hook(CompileHook hook) { compile_hook.store(hook); }

std::mutex& kernel_cache_mutex() { return cache().mutex; }

void clear_kernel_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.slots.clear();
}

}  // namespace kiln::engine
