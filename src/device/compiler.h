// Compiler: from kernels of the loop IR to code that a device launches, by way of a binary that the disk
// cache keeps. One object holds every option that decides machine code, as the options were when it was asked
// for: compiling in the background is not changed by a later configure().
#pragma once

#include "device/launch.h"
#include "kernel/kernel.h"
#include "support/hash128.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::device {

using Binary = std::vector<std::uint8_t>;

/// A file that a person made of a generated source.
struct EditedSource {
  std::string name;
  std::string text;
};

/// A kernel to be compiled.
struct Unit {
  const kernel::Kernel* kernel;          // null: `edited` is all there is, for compile() and load()
  std::string symbol;                    // of its function
  int instances = 1;                     // sets of arguments that a launch takes at most
  const EditedSource* edited = nullptr;  // compiled instead of what the compiler would write
  bool marked = false;  // text() and source() have marks (kernel/marks.h), and are not compiled
};

/// A form of a kernel that people read: its name in KILN_DUMP_STAGES, and how its files' names end.
struct Stage {
  std::string_view name, extension;
};

class Compiler {
 public:
  virtual ~Compiler() = default;

  /// False: it compiles nothing, and every kernel is interpreted. Pre, where false: interprets().
  virtual bool available() const { return true; }
  /// Kernels run before they are compiled, or without being compiled.
  virtual bool interprets() const { return false; }
  /// Everything but the kernel that decides a binary (device, versions, target), in lines. Part of the keys
  /// of the disk cache. Empty: binaries are not kept on disk. CompileError where there is no compiler.
  virtual std::string key() const = 0;
  /// The same for code in memory, where versions do not change but devices differ.
  virtual Hash128 memory_key() const = 0;

  /// What a unit is compiled from: the generated text, even where a person edited it. CompileError.
  virtual std::string source(const Unit& unit) const = 0;
  /// Units with one fingerprint have one source(). For KILN_CHECK=key, which takes it of every kernel.
  virtual Hash128 fingerprint(const Unit& unit) const { return hash128(source(unit)); }
  /// How names of edited sources in KILN_OVERRIDE_DIR end; empty: there are none.
  virtual std::string_view edited_extension() const { return {}; }
  virtual std::span<const Stage> stages() const = 0;
  /// A unit in the form of one of the stages. Nothing where it cannot be had; a warning says why.
  virtual std::optional<std::string> text(std::string_view stage, const Unit& unit) const = 0;

  /// From any threads side by side. CompileError with the compiler's message.
  virtual Binary compile(const Unit& unit) const = 0;
  /// Code that does not run yet: for load() or interpret() of this object.
  virtual std::shared_ptr<Code> new_code() const = 0;
  /// From now on the binary runs, also where another thread launches the code meanwhile. CompileError when it
  /// is damaged or for another device, DeviceError when the device fails.
  virtual void load(Code& code, const Binary& binary, const Unit& unit) const = 0;
  /// Lets an interpreter run the kernel until a binary is loaded. Before the code is shared. Pre:
  /// interprets().
  virtual void interpret(Code& code, const Unit& unit) const;
};

/// Binaries that outlive the process, for what a device compiles outside the kernel cache.
class BinaryStore {
 public:
  virtual ~BinaryStore() = default;
  /// `what`: the hash of all that the binary is made of; `key`: as Compiler::key().
  virtual std::optional<Binary> get(const Hash128& what, const std::string& key) = 0;
  virtual void put(const Hash128& what, const std::string& key, const Binary& binary) = 0;
};

/// The process's store, which must live for ever; null: none, as in the beginning.
void set_binary_store(BinaryStore* store);
BinaryStore* binary_store();

/// Keeps in the store, beside the binaries, what their compiler says of itself: `target` is what a machine
/// without a compiler knows of its device, `said` what it needs to find the binaries by. Cheap where it is
/// kept already.
void remember_compiler(const std::string& target, const std::string& said);
/// What was kept for a target, or nothing.
std::optional<std::string> remembered_compiler(const std::string& target);

/// Whether this process does as a build without compilers on a machine without NVRTC does, which runs what
/// other processes compiled: KILN_TEST_NO_COMPILERS=1, for tests.
bool hides_compilers();

}  // namespace kiln::device
