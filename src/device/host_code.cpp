// What gdb asks for (its manual: JIT Compilation Interface): the variable __jit_debug_descriptor, a list of
// object files, and the function __jit_debug_register_code, in which it has a breakpoint. LLVM's library has
// both too; one definition serves, whoever calls it.
#include "device/host_code.h"

#include "support/check.h"
#include "support/log.h"
#include "support/trace_option.h"

#include <kiln/config.h>

#include <elf.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>

extern "C" {

struct jit_code_entry {
  jit_code_entry* next;
  jit_code_entry* previous;
  const char* object;
  std::uint64_t bytes;
};
struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action;
  jit_code_entry* relevant;
  jit_code_entry* first;
};
__attribute__((weak)) jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
__attribute__((weak, noinline)) void __jit_debug_register_code() { __asm__ volatile("" ::: "memory"); }
}

namespace kiln::device {
namespace {

/// Immortal: kernels are loaded until the process ends.
std::mutex& told_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

std::string name_of(const std::string& kernel, const HostFunction& f) {
  return f.part.empty() ? kernel : kernel + "." + f.part;
}

/// /tmp/perf-PID.map, where perf looks: a line for each function.
void tell_perf(const std::string& kernel, const SourceLocation& line,
               std::span<const HostFunction> functions) {
  const std::string file = cat("/tmp/perf-", getpid(), ".map");
  std::FILE* out = std::fopen(file.c_str(), "a");
  if (!out) return warn_once("perf", cat("cannot write to ", file));
  for (const HostFunction& f : functions)
    std::fprintf(out, "%llx %llx %s %s:%u\n",
                 static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(f.address)),
                 static_cast<unsigned long long>(f.bytes), name_of(kernel, f).c_str(), line.file_name(),
                 line.line());
  std::fclose(out);
}

void tell_gdb(const std::string& kernel, const SourceLocation& line,
              std::span<const HostFunction> functions) {
  constexpr std::uint32_t kRegister = 1;
  const auto* object = new std::vector<std::uint8_t>(debug_object(kernel, line, functions));
  auto* entry = new jit_code_entry{__jit_debug_descriptor.first, nullptr,
                                   reinterpret_cast<const char*>(object->data()), object->size()};
  if (entry->next) entry->next->previous = entry;
  __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = entry;
  __jit_debug_descriptor.action = kRegister;
  __jit_debug_register_code();
  __jit_debug_descriptor.action = 0;
}

/// Bytes of a section, little-endian.
class Bytes {
 public:
  template <class T>
  void put(T value) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(&value);
    data.insert(data.end(), from, from + sizeof value);
  }
  void text(const std::string& s) {
    data.insert(data.end(), s.begin(), s.end());
    data.push_back(0);
  }
  void leb(std::uint64_t value) {
    do {
      data.push_back(static_cast<std::uint8_t>((value & 0x7f) | (value > 0x7f ? 0x80 : 0)));
      value >>= 7;
    } while (value != 0);
  }
  void patch(std::size_t at, std::uint32_t value) { std::memcpy(data.data() + at, &value, sizeof value); }
  std::vector<std::uint8_t> data;
};

std::uint64_t address_of(const HostFunction& f) { return reinterpret_cast<std::uintptr_t>(f.address); }

/// DWARF 4: a unit of the program's file with a function for each of the kernel's.
Bytes abbreviations() {
  Bytes out;
  for (const std::uint8_t b : {1,    0x11, 1,  // 1: a unit, with children
                               0x03, 0x08,     // name: text
                               0x13, 0x05,     // language: 2 bytes
                               0x10, 0x17,     // lines: offset of a section
                               0,    0,        //
                               2,    0x2e, 0,  // 2: a function
                               0x03, 0x08,     // name
                               0x11, 0x01,     // first address
                               0x12, 0x07,     // bytes: 8
                               0x3a, 0x0b,     // file: 1 byte
                               0x3b, 0x06,     // line: 4 bytes
                               0,    0,    0})
    out.put(b);
  return out;
}

Bytes functions_info(const std::string& kernel, const SourceLocation& line,
                     std::span<const HostFunction> functions) {
  constexpr std::uint16_t kVersion = 4, kC = 0x0c;
  Bytes out;
  out.put<std::uint32_t>(0);
  out.put(kVersion);
  out.put<std::uint32_t>(0);  // abbreviations
  out.put<std::uint8_t>(sizeof(void*));
  out.leb(1);
  out.text(line.file_name());
  out.put(kC);
  out.put<std::uint32_t>(0);  // lines
  for (const HostFunction& f : functions) {
    out.leb(2);
    out.text(name_of(kernel, f));
    out.put<std::uint64_t>(address_of(f));
    out.put<std::uint64_t>(f.bytes);
    out.put<std::uint8_t>(1);
    out.put<std::uint32_t>(line.line());
  }
  out.put<std::uint8_t>(0);
  out.patch(0, static_cast<std::uint32_t>(out.data.size() - 4));
  return out;
}

/// All of a function belongs to the one line.
Bytes lines_info(const SourceLocation& line, std::span<const HostFunction> functions) {
  Bytes out;
  out.put<std::uint32_t>(0);
  out.put<std::uint16_t>(4);
  const std::size_t length_at = out.data.size();
  out.put<std::uint32_t>(0);
  for (const std::uint8_t b : {1, 1, 1}) out.put(b);  // least instruction, operations, statements
  out.put<std::int8_t>(-5);
  out.put<std::uint8_t>(14);
  out.put<std::uint8_t>(13);  // first opcode that is special
  for (const std::uint8_t operands : {0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}) out.put(operands);
  out.put<std::uint8_t>(0);  // no directories
  out.text(line.file_name());
  for (const std::uint8_t b : {0, 0, 0}) out.put(b);
  out.put<std::uint8_t>(0);  // no more files
  out.patch(length_at, static_cast<std::uint32_t>(out.data.size() - length_at - 4));
  constexpr std::uint8_t kExtended = 0, kSetAddress = 2, kEnd = 1, kCopy = 1, kAdvancePc = 2,
                         kAdvanceLine = 3;
  for (const HostFunction& f : functions) {
    out.put(kExtended);
    out.leb(9);
    out.put(kSetAddress);
    out.put<std::uint64_t>(address_of(f));
    out.put(kAdvanceLine);
    std::int64_t by = static_cast<std::int64_t>(line.line()) - 1;  // signed LEB128
    for (bool more = true; more;) {
      const auto low = static_cast<std::uint8_t>(by & 0x7f);
      by >>= 7;
      more = !(by == 0 && !(low & 0x40));
      out.put<std::uint8_t>(more ? low | 0x80 : low);
    }
    out.put(kCopy);
    out.put(kAdvancePc);
    out.leb(f.bytes);
    out.put(kExtended);
    out.leb(1);
    out.put(kEnd);
  }
  out.patch(0, static_cast<std::uint32_t>(out.data.size() - 4));
  return out;
}

struct Section {
  Elf64_Shdr header{};
  Bytes bytes{};
};

/// An object file of sections, of which the last has their names.
std::vector<std::uint8_t> object_of(std::vector<Section>& sections) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
#if defined(__aarch64__)
  header.e_machine = EM_AARCH64;
#else
  header.e_machine = EM_X86_64;
#endif
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(sections.size());
  header.e_shstrndx = static_cast<Elf64_Half>(sections.size() - 1);
  std::uint64_t at = sizeof header;
  for (Section& s : sections) {
    if (s.header.sh_type == SHT_NULL || s.header.sh_type == SHT_NOBITS) continue;
    at = (at + 7) / 8 * 8;
    s.header.sh_offset = at;
    s.header.sh_size = s.bytes.data.size();
    at += s.header.sh_size;
  }
  header.e_shoff = (at + 7) / 8 * 8;
  std::vector<std::uint8_t> out(header.e_shoff + sections.size() * sizeof(Elf64_Shdr));
  std::memcpy(out.data(), &header, sizeof header);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const Section& s = sections[i];
    if (!s.bytes.data.empty())
      std::memcpy(out.data() + s.header.sh_offset, s.bytes.data.data(), s.bytes.data.size());
    std::memcpy(out.data() + header.e_shoff + i * sizeof(Elf64_Shdr), &s.header, sizeof(Elf64_Shdr));
  }
  return out;
}

}  // namespace

std::vector<std::uint8_t> debug_object(const std::string& kernel, const SourceLocation& line,
                                       std::span<const HostFunction> functions) {
  std::uint64_t first = ~std::uint64_t{0}, last = 0;
  for (const HostFunction& f : functions) {
    first = std::min(first, address_of(f));
    last = std::max(last, address_of(f) + f.bytes);
  }
  std::vector<Section> sections(8);
  enum { kNone, kText, kSymbols, kNames, kAbbreviations, kInfo, kLines, kSectionNames };
  constexpr const char* kNamesOf[] = {
      "", ".text", ".symtab", ".strtab", ".debug_abbrev", ".debug_info", ".debug_line", ".shstrtab"};
  sections[kText].header = {.sh_type = SHT_NOBITS,
                            .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                            .sh_addr = first,
                            .sh_size = last - first,
                            .sh_addralign = 1};
  Bytes& symbols = sections[kSymbols].bytes;
  Bytes& names = sections[kNames].bytes;
  symbols.put(Elf64_Sym{});
  names.text("");
  for (const HostFunction& f : functions) {
    Elf64_Sym s{};
    s.st_name = static_cast<Elf64_Word>(names.data.size());
    s.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    s.st_shndx = kText;
    s.st_value = address_of(f) - first;  // of an object that is to be linked: in its section
    s.st_size = f.bytes;
    symbols.put(s);
    names.text(name_of(kernel, f));
  }
  sections[kSymbols].header = {.sh_type = SHT_SYMTAB,
                               .sh_link = kNames,
                               .sh_info = 1,
                               .sh_addralign = 8,
                               .sh_entsize = sizeof(Elf64_Sym)};
  sections[kNames].header = {.sh_type = SHT_STRTAB, .sh_addralign = 1};
  sections[kAbbreviations].bytes = abbreviations();
  sections[kInfo].bytes = functions_info(kernel, line, functions);
  sections[kLines].bytes = lines_info(line, functions);
  for (const int s : {kAbbreviations, kInfo, kLines})
    sections[static_cast<std::size_t>(s)].header = {.sh_type = SHT_PROGBITS, .sh_addralign = 1};
  sections[kSectionNames].header = {.sh_type = SHT_STRTAB, .sh_addralign = 1};
  for (std::size_t i = 0; i < sections.size(); ++i) {
    sections[i].header.sh_name = static_cast<Elf64_Word>(sections[kSectionNames].bytes.data.size());
    sections[kSectionNames].bytes.text(kNamesOf[i]);
  }
  return object_of(sections);
}

bool tells_code() {
  const std::string& list = config().trace;
  if (list.empty()) [[likely]]
    return false;
  return trace_has(list, "perf") || trace_has(list, "gdb");
}

void tell_code(const std::string& kernel, const SourceLocation& line,
               std::span<const HostFunction> functions) {
  if (functions.empty()) return;
  const std::lock_guard lock(told_mutex());
  if (trace_has(config().trace, "perf")) tell_perf(kernel, line, functions);
  if (trace_has(config().trace, "gdb")) tell_gdb(kernel, line, functions);
}

}  // namespace kiln::device
