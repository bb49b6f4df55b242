#include "cache/kernel_cache.h"

#include "cache/background.h"
#include "cache/disk_cache.h"
#include "cache/failed_kernel.h"
#include "cache/kernel_source.h"
#include "device/cpu/threads.h"
#include "device/device.h"
#include "device/host_code.h"
#include "engine/lifetime.h"
#include "generator_hash.h"
#include "inspect/statistics.h"
#include "inspect/timeline.h"
#include "support/check.h"
#include "support/log.h"

#include <kiln/config.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace kiln::engine {
namespace {

struct Slot {
  std::shared_ptr<const CachedKernel> kernel;  // null while being made
  Hash128 text;                                // KILN_CHECK=key: fingerprint of what it was made from
  bool failed = false;
};

struct Cache {
  std::mutex mutex;
  std::condition_variable made;
  std::unordered_map<Hash128, std::shared_ptr<Slot>, HashOf> slots;
  std::mutex disk_mutex;
  std::unique_ptr<DiskCache> disk;
  std::vector<std::unique_ptr<DiskCache>> former_disks;  // which another thread may still read
  std::string disk_settings;
};
Cache& cache() {
  static Cache* const c = new Cache;  // immortal, like the kernels
  return *c;
}

/// A request with what is found out for it once.
struct Wanted {
  KernelRequest& request;
  std::shared_ptr<const device::Compiler> compiler;
  std::optional<device::EditedSource> edited;
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
Hash128 slot_key(const Wanted& w) {
  const Hash128 own = w.compiler->memory_key(), text = w.edited ? hash128(w.edited->text) : Hash128{};
  const auto tier = w.compiler->interprets() ? static_cast<std::uint64_t>(config().tier) : 0;
  return {w.key.lo ^ own.lo ^ text.lo ^ tier, w.key.hi ^ own.hi ^ text.hi};
}

Wanted wanted_of(KernelRequest& r) {
  Wanted w{r, device::at(r.device).compiler(), {}, code_key(r), {}};
  w.edited = edited_source(w.key, *w.compiler);
  w.slot = slot_key(w);
  return w;
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
    auto made = std::make_unique<DiskCache>(std::move(o));
    if (c.disk) c.former_disks.push_back(std::move(c.disk));  // settings change a few times at most
    c.disk = std::move(made);
    c.disk_settings = settings;
  }
  return c.disk->usable() ? c.disk.get() : nullptr;
}

std::atomic<CompileHook> compile_hook{nullptr};

/// Makes a kernel's machine code. Holds everything that decides it, as options were when the kernel was asked
/// for.
struct Compilation {
  std::shared_ptr<CachedKernel> into;
  std::shared_ptr<const device::Compiler> compiler;
  const kernel::Kernel* kernel;
  std::string symbol;
  std::optional<device::EditedSource> edited;  // compiled instead, and kept in memory alone
  DiskCache* disk = nullptr;
  std::string disk_key;
  SourceLocation line = SourceLocation();

  using Time = std::chrono::steady_clock::time_point;

  device::Unit unit() const { return {kernel, symbol, into->instances, edited ? &*edited : nullptr}; }

  /// `start`: when work on it began, which may be long after the kernel was asked for.
  void publish(const device::Binary& binary, Time start) const {
    compiler->load(*into->code, binary, unit());
    if (device::tells_code()) [[unlikely]]
      device::tell_code(into->name, line, into->code->host_functions());
    const auto ns = static_cast<std::uint64_t>((std::chrono::steady_clock::now() - start).count());
    into->compile_ns.store(ns, std::memory_order_relaxed);
    count(Counter::CompileNs, ns);
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
    const TraceSpan span("compiling", "from disk", into->name);
    const Time start = std::chrono::steady_clock::now();
    const auto binary = disk->get(disk_key);
    if (!binary) return false;
    try {
      publish(*binary, start);
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
    const TraceSpan span("compiling", "compile", into->name);
    const Time start = std::chrono::steady_clock::now();
    try {
      if (const CompileHook hook = compile_hook.load(std::memory_order_relaxed)) hook(*kernel);
      const device::Binary binary = compiler->compile(unit());
      publish(binary, start);
      count(Counter::KernelsCompiled);
      log_made("compiled", start);
      if (disk) disk->put(disk_key, {reinterpret_cast<const char*>(binary.data()), binary.size()});
    } catch (const CompileError& e) {
      count(Counter::Fallbacks);
      throw CompileError(cat(e.what(), "; its source is in ",
                             edited ? edited->name : write_failed_kernel(unit(), *compiler)));
    }
  }
};

/// What devices compile besides the kernels of plans, in the disk cache.
class TemplateStore final : public device::BinaryStore {
 public:
  std::optional<device::Binary> get(const Hash128& what, const std::string& key) override {
    DiskCache* const kept = disk();
    return kept ? kept->get(engine::disk_key(what, key)) : std::nullopt;
  }
  void put(const Hash128& what, const std::string& key, const device::Binary& binary) override {
    if (DiskCache* const kept = disk())
      kept->put(engine::disk_key(what, key), {reinterpret_cast<const char*>(binary.data()), binary.size()});
  }
};

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

/// From disk, from the compiler, or for an interpreter.
Made make(const Wanted& wanted) {
  const KernelRequest& r = wanted.request;
  const device::Compiler& compiler = *wanted.compiler;
  kernel::verify(*r.kernel);  // each kernel once: one that is not well formed would be wrong without a sign
  auto out = std::make_shared<CachedKernel>();
  out->code = compiler.new_code();
  out->key = wanted.key;
  out->instances = r.instances;
  out->name = r.kernel->label + "-" + short_name(wanted.key);
  Compilation c{out, wanted.compiler, r.kernel, symbol_of(wanted.key), wanted.edited, nullptr, {}, r.line};
  const Tier tier = compiler.interprets() ? config().tier : Tier::Jit;
  const auto by_vm = [&] {
    compiler.interpret(*out->code, c.unit());
    out->verdict = Verdict::Vm;
    return Made{out};
  };
  if (tier == Tier::Vm) return by_vm();
  if (wanted.edited)
    warn(cat(out->name, " is made from ", wanted.edited->name));
  else
    c.disk = disk();
  if (c.disk) {
    const std::string key = compiler.key();
    if (key.empty())
      c.disk = nullptr;
    else
      c.disk_key = engine::disk_key(wanted.key, key);
  }
  if (c.from_disk()) {
    out->verdict = Verdict::Disk;
    return {out};
  }
  if (!compiler.available()) return by_vm();
  if (tier == Tier::Jit) {
    try {
      c.compile();
      return {out};
    } catch (const CompileError& e) {
      if (!compiler.interprets()) throw;
      warn(cat(e.what(), "; running it by the vm"));
    }
  }
  Made made = by_vm();
  made.keep = tier != Tier::Jit;
  if (made.keep) compile_later(std::move(c));
  return made;
}

Hash128 fingerprint(const Wanted& w) {
  return w.compiler->fingerprint({w.request.kernel, "k", w.request.instances, nullptr});
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
  const Wanted wanted = wanted_of(r);
  if (!claim(wanted, slot)) {
    if (check && slot->text != Hash128{} && slot->text != fingerprint(wanted))
      throw WrongKernel(
          cat("[cache] kernel ", r.result->name, " was found for a kernel that emits other code"));
    return;
  }
  Made made;
  try {
    made = make(wanted);
    if (check && made.kernel->verdict != Verdict::Vm && wanted.compiler->available())
      slot->text = fingerprint(wanted);
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

bool is_at_hand(const KernelRequest& request) {
  KernelRequest own = request;
  const Wanted wanted = wanted_of(own);
  {
    std::lock_guard lock(cache().mutex);
    const auto found = cache().slots.find(wanted.slot);
    if (found != cache().slots.end() && found->second->kernel) return true;
  }
  DiskCache* const kept = wanted.edited ? nullptr : disk();
  const std::string key = kept ? wanted.compiler->key() : std::string();
  return !key.empty() && kept->get(disk_key(wanted.key, key));
}

std::string disk_key(const Hash128& kernel, const std::string& compiler) {
  return cat("kernel ", kernel.hex(), "\ngenerator " KILN_GENERATOR_HASH "\n", compiler);
}

void keep_binaries_on_disk() {
  static TemplateStore* const store = new TemplateStore;  // for ever, like the cache
  device::set_binary_store(store);
}

void set_compile_hook(CompileHook hook) { compile_hook.store(hook); }

DiskCache* disk_cache() { return disk(); }

std::mutex& kernel_cache_mutex() { return cache().mutex; }

void clear_kernel_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.slots.clear();
}

}  // namespace kiln::engine
