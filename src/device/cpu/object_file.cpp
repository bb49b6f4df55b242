// Layout of a linked object: code and jumps to other libraries; then constants and the table of addresses;
// then variables; each from a page on, so that nothing is writable and executable at the same time. Every
// offset of the object is checked before it is used.
#include "device/cpu/object_file.h"

#include "codegen/llvm/vector_math.h"
#include "support/check.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

namespace kiln::cpu {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw CompileError("[compile] cannot link machine code: " + why);
}

/// An object's tables. CompileError for what they do not hold.
class ObjectFile {
 public:
  explicit ObjectFile(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
    header_ = at<Elf64_Ehdr>(0);
    const bool known = std::memcmp(header_.e_ident, ELFMAG, SELFMAG) == 0 &&
                       header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_ident[EI_DATA] == ELFDATA2LSB &&
                       header_.e_type == ET_REL && header_.e_shentsize == sizeof(Elf64_Shdr);
    if (!known) refuse("it is no object file");
    for (std::size_t i = 0; i < header_.e_shnum; ++i)
      sections_.push_back(at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr)));
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_SYMTAB) continue;
      symbols_ = table<Elf64_Sym>(s);
      names_ = contents(section(s.sh_link));
    }
  }

  bool is_for(unsigned machine) const { return header_.e_machine == machine; }
  const std::vector<Elf64_Shdr>& sections() const { return sections_; }
  const std::vector<Elf64_Sym>& symbols() const { return symbols_; }
  const Elf64_Shdr& section(std::size_t index) const {
    if (index >= sections_.size()) refuse("it names a section that is not there");
    return sections_[index];
  }
  const Elf64_Sym& symbol(std::size_t index) const {
    if (index >= symbols_.size()) refuse("it names a symbol that is not there");
    return symbols_[index];
  }
  std::string name(const Elf64_Sym& symbol) const {
    if (symbol.st_name >= names_.size()) refuse("a name is not there");
    const auto rest = names_.subspan(symbol.st_name);
    return {rest.begin(), std::find(rest.begin(), rest.end(), 0)};
  }
  std::span<const std::uint8_t> contents(const Elf64_Shdr& s) const {
    if (s.sh_type == SHT_NOBITS) return {};
    if (s.sh_offset > bytes_.size() || s.sh_size > bytes_.size() - s.sh_offset) refuse("it is too short");
    return bytes_.subspan(s.sh_offset, s.sh_size);
  }
  template <class T>
  std::vector<T> table(const Elf64_Shdr& s) const {
    const auto from = contents(s);
    std::vector<T> out(from.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), from.data(), out.size() * sizeof(T));
    return out;
  }

 private:
  template <class T>
  T at(std::uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) refuse("it is too short");
    T out;
    std::memcpy(&out, bytes_.data() + offset, sizeof(T));
    return out;
  }

  std::span<const std::uint8_t> bytes_;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Shdr> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::span<const std::uint8_t> names_;
};

std::vector<ObjectFunction> functions_of(const ObjectFile& object) {
  std::vector<ObjectFunction> out;
  for (const Elf64_Sym& s : object.symbols())
    if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && ELF64_ST_BIND(s.st_info) == STB_GLOBAL &&
        s.st_shndx != SHN_UNDEF)
      out.push_back({object.name(s), s.st_size});
  return out;
}

void* external(const std::string& name) {
  if (void* found = dlsym(RTLD_DEFAULT, name.c_str())) return found;
  static void* const math = dlopen(codegen::kVectorMathLibrary, RTLD_NOW | RTLD_LOCAL);
  if (math)
    if (void* found = dlsym(math, name.c_str())) return found;
  refuse("this process has no " + name);
}

std::uint64_t rounded_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

class Linker {
 public:
  explicit Linker(const ObjectFile& object) : object_(object), offsets_(object.sections().size(), kNowhere) {}

  std::vector<ObjectFunction> link() {
    lay_out();
    void* const memory =
        mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) refuse("there is no memory");
    base_ = static_cast<std::uint8_t*>(memory);
    try {
      fill();
      if (mprotect(base_, code_bytes_, PROT_READ | PROT_EXEC) != 0 ||
          (variables_ > code_bytes_ &&
           mprotect(base_ + code_bytes_, variables_ - code_bytes_, PROT_READ) != 0))
        refuse("memory does not become executable");
      return found();
    } catch (...) {
      munmap(memory, total_);
      throw;
    }
  }

 private:
  static constexpr std::uint64_t kNowhere = std::numeric_limits<std::uint64_t>::max(), kJumpBytes = 8;

  /// Sections that the code needs: those for unwinding are not among them, since kernels throw nothing.
  static bool is_loaded(const Elf64_Shdr& s) {
    if (!(s.sh_flags & SHF_ALLOC) || s.sh_type == SHT_NOTE || s.sh_type == SHT_X86_64_UNWIND) return false;
    return s.sh_type == SHT_PROGBITS || s.sh_type == SHT_NOBITS;
  }

  enum class Kind : std::uint8_t { Code, Constants, Variables };
  static Kind kind_of(const Elf64_Shdr& s) {
    return s.sh_flags & SHF_EXECINSTR ? Kind::Code
           : s.sh_flags & SHF_WRITE   ? Kind::Variables
                                      : Kind::Constants;
  }

  std::uint64_t place_sections(Kind kind, std::uint64_t end) {
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const Elf64_Shdr& s = object_.sections()[i];
      if (!is_loaded(s) || kind_of(s) != kind) continue;
      if (s.sh_size > kMostBytes || s.sh_addralign > kPage) refuse("it is too large");
      offsets_[i] = rounded_up(end, std::max<std::uint64_t>(s.sh_addralign, 1));
      end = offsets_[i] + s.sh_size;
      if (end > kMostBytes) refuse("it is too large");
    }
    return end;
  }

  void lay_out() {
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const Elf64_Shdr& s = object_.sections()[i];
      if (s.sh_type != SHT_RELA) continue;
      for (const Elf64_Rela& r : object_.table<Elf64_Rela>(s)) {
        const std::size_t symbol = ELF64_R_SYM(r.r_info);
        (void)object_.symbol(symbol);
        slots_.emplace(symbol, slots_.size());
      }
    }
    jumps_ = rounded_up(place_sections(Kind::Code, 0), kJumpBytes);
    code_bytes_ = rounded_up(std::max<std::uint64_t>(jumps_ + slots_.size() * kJumpBytes, 1), kPage);
    table_ = rounded_up(place_sections(Kind::Constants, code_bytes_), sizeof(std::uint64_t));
    variables_ = rounded_up(table_ + slots_.size() * sizeof(std::uint64_t), kPage);
    total_ = rounded_up(place_sections(Kind::Variables, variables_), kPage);
  }

  std::uint64_t address(std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t>(base_) + offset;
  }

  std::uint64_t address_of(const Elf64_Sym& s) const {
    if (s.st_shndx == SHN_ABS) return s.st_value;
    if (s.st_shndx >= offsets_.size() || offsets_[s.st_shndx] == kNowhere)
      refuse("it needs a section that is not loaded");
    if (s.st_value > object_.sections()[s.st_shndx].sh_size) refuse("a symbol lies outside its section");
    return address(offsets_[s.st_shndx]) + s.st_value;
  }

  void fill() {
    for (std::size_t i = 0; i < offsets_.size(); ++i)
      if (const auto from = object_.contents(object_.sections()[i]); offsets_[i] != kNowhere && !from.empty())
        std::memcpy(base_ + offsets_[i], from.data(), from.size());
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const Elf64_Shdr& s = object_.sections()[i];
      if (s.sh_type != SHT_RELA || s.sh_info >= offsets_.size() || offsets_[s.sh_info] == kNowhere) continue;
      for (const Elf64_Rela& r : object_.table<Elf64_Rela>(s)) relocate(object_.section(s.sh_info), r);
    }
  }

  std::uint64_t value_of(std::size_t symbol) const {
    const Elf64_Sym& s = object_.symbol(symbol);
    return s.st_shndx == SHN_UNDEF ? reinterpret_cast<std::uint64_t>(external(object_.name(s)))
                                   : address_of(s);
  }

  /// The entry of the table of addresses, which this fills.
  std::uint64_t slot(std::size_t symbol) {
    const std::uint64_t to = value_of(symbol), at = table_ + slots_.at(symbol) * sizeof(std::uint64_t);
    std::memcpy(base_ + at, &to, sizeof to);
    return address(at);
  }

  /// Where calls go: another library may be further away than a call reaches.
  std::uint64_t target(std::size_t symbol) {
    const Elf64_Sym& s = object_.symbol(symbol);
    if (s.st_shndx != SHN_UNDEF) return address_of(s);
    const std::uint64_t at = jumps_ + slots_.at(symbol) * kJumpBytes;
    const auto far = static_cast<std::int32_t>(slot(symbol) - (address(at) + 6));
    base_[at] = 0xff;  // jmp *far(%rip)
    base_[at + 1] = 0x25;
    std::memcpy(base_ + at + 2, &far, sizeof far);
    return address(at);
  }

  template <class T>
  void store(const Elf64_Shdr& section, const Elf64_Rela& r, std::uint64_t value) {
    if (r.r_offset > section.sh_size || sizeof(T) > section.sh_size - r.r_offset)
      refuse("a relocation lies outside its section");
    const auto narrow = static_cast<T>(value);
    if (sizeof(T) < sizeof value && static_cast<std::uint64_t>(static_cast<std::int64_t>(narrow)) != value)
      refuse("a distance does not fit");
    std::memcpy(base_ + offsets_[index_of(section)] + r.r_offset, &narrow, sizeof narrow);
  }
  std::size_t index_of(const Elf64_Shdr& s) const {
    return static_cast<std::size_t>(&s - object_.sections().data());
  }

  void relocate(const Elf64_Shdr& section, const Elf64_Rela& r) {
    const std::size_t symbol = ELF64_R_SYM(r.r_info);
    const auto type = ELF64_R_TYPE(r.r_info);
    const auto addend = static_cast<std::uint64_t>(r.r_addend);
    const std::uint64_t here = address(offsets_[index_of(section)] + r.r_offset);
    const std::uint64_t table = address(table_);
    switch (type) {
      case R_X86_64_NONE: return;
      case R_X86_64_PC32:
      case R_X86_64_PLT32: return store<std::int32_t>(section, r, target(symbol) + addend - here);
      case R_X86_64_64: return store<std::int64_t>(section, r, value_of(symbol) + addend);
      case R_X86_64_PC64: return store<std::int64_t>(section, r, value_of(symbol) + addend - here);
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX: return store<std::int32_t>(section, r, slot(symbol) + addend - here);
      // code for any distance, which LLVM makes for a JIT: all is relative to the table
      case R_X86_64_GOTPC32: return store<std::int32_t>(section, r, table + addend - here);
      case R_X86_64_GOTPC64: return store<std::int64_t>(section, r, table + addend - here);
      case R_X86_64_GOT64: return store<std::int64_t>(section, r, slot(symbol) + addend - table);
      case R_X86_64_GOTOFF64:
      case R_X86_64_PLTOFF64: return store<std::int64_t>(section, r, value_of(symbol) + addend - table);
      default: break;  // of a list that others keep
    }
    refuse(cat("relocation ", type, " is not known"));
  }

  std::vector<ObjectFunction> found() const {
    std::vector<ObjectFunction> out;
    for (const Elf64_Sym& s : object_.symbols()) {
      if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || ELF64_ST_BIND(s.st_info) != STB_GLOBAL ||
          s.st_shndx == SHN_UNDEF)
        continue;
      out.push_back({object_.name(s), s.st_size, reinterpret_cast<void*>(address_of(s))});
    }
    return out;
  }

  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  static inline const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const ObjectFile& object_;
  std::vector<std::uint64_t> offsets_;        // of sections, in the memory
  std::map<std::size_t, std::size_t> slots_;  // symbols that relocations name: their entries
  std::uint64_t jumps_ = 0, code_bytes_ = 0, table_ = 0, variables_ = 0, total_ = 0;
  std::uint8_t* base_ = nullptr;
};

}  // namespace

std::vector<ObjectFunction> functions_of(std::span<const std::uint8_t> object) {
  try {
    return functions_of(ObjectFile(object));
  } catch (const CompileError&) {
    return {};
  }
}

bool links_objects() {
#if defined(__x86_64__) && defined(__linux__)
  return true;
#else
  return false;
#endif
}

std::vector<ObjectFunction> link_object(std::span<const std::uint8_t> object) {
  const ObjectFile file(object);
  if (!file.is_for(EM_X86_64)) refuse("it is for another machine");
  return Linker(file).link();
}

MachineCode machine_code_of(std::span<const ObjectFunction> functions, const std::string& symbol) {
  MachineCode out;
  for (const ObjectFunction& f : functions) {
    if (!f.name.starts_with(symbol) || f.address == nullptr) continue;
    const std::string part = f.name.size() > symbol.size() ? f.name.substr(symbol.size() + 1) : std::string();
    const auto fn = reinterpret_cast<kernel::KernelFn>(f.address);
    if (part.empty()) out.body = fn;
    if (part == "link") out.link = fn;
    if (part == "second") out.second = fn;
    if (part == "finish") out.finish = fn;
    out.functions.push_back({part, f.address, f.bytes});
  }
  if (!out.body) refuse("it has no " + symbol);
  return out;
}

}  // namespace kiln::cpu
