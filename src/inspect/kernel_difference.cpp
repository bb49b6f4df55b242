#include "inspect/kernel_difference.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <vector>

namespace kiln::engine {
namespace {

constexpr std::size_t kMostLabels = 256, kMostOfALabel = 16;

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& text) {
  Lines out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (const std::size_t slots = line.find(" slots "); line.starts_with("params ") && slots != line.npos) {
      out.push_back(line.substr(0, line.find_last_not_of(' ', slots) + 1));
      line.erase(0, slots + 1);
    }
    if (!line.empty()) out.push_back(std::move(line));
  }
  return out;
}

/// The part of a kernel that a line of its loop IR belongs to.
std::string field_of(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(" :["), line.size());
  const std::string word = line.substr(0, end);
  if (word == "params") return "parameters";
  if (word == "slots") return "slots";
  if (end < line.size() && line[end] == ':') return "buffer " + word;
  for (const char* loop : {"grid", "for", "vector", "while"})
    if (word.starts_with(loop)) return "loops";
  return "values";
}

std::size_t shared_lines(const Lines& a, const Lines& b) {
  const std::multiset<std::string> of_b(b.begin(), b.end());
  return static_cast<std::size_t>(
      std::count_if(a.begin(), a.end(), [&](const std::string& line) { return of_b.contains(line); }));
}

/// How much a field tells: what memory a kernel has decides its parameters, not the reverse.
int rank(const std::string& field) {
  if (field.starts_with("buffer")) return 0;
  if (field == "slots") return 1;
  if (field == "loops") return 2;
  return field == "values" ? 3 : 4;
}

/// The line that tells most of those that only one of two kernels has.
KernelDifference difference(const Lines& now, const Lines& was) {
  const auto best = [](const Lines& of, const Lines& other) {
    const std::set<std::string> have(other.begin(), other.end());
    std::string out;
    for (const std::string& line : of)
      if (!have.contains(line) && (out.empty() || rank(field_of(line)) < rank(field_of(out)))) out = line;
    return out;
  };
  const std::string new_line = best(now, was), old_line = best(was, now);
  if (new_line.empty() && old_line.empty()) return {};
  if (new_line.empty()) return {field_of(old_line), {}, old_line};
  return {field_of(new_line), new_line, old_line};
}

struct NewKernel {
  Lines lines;
  std::uint64_t report;
};
struct NewKernels {
  std::mutex mutex;
  std::map<std::string, std::vector<NewKernel>> by_label;
};
NewKernels& new_kernels() {
  static NewKernels* const kept = new NewKernels;  // detached threads may evaluate during exit
  return *kept;
}

}  // namespace

KernelDifference kernel_difference(const std::string& now, const std::string& was) {
  return difference(lines_of(now), lines_of(was));
}

std::uint64_t next_report() {
  static std::atomic<std::uint64_t> reports{0};
  return ++reports;
}

KernelDifference note_new_kernel(const kernel::Kernel& kernel, std::uint64_t report) {
  Lines lines = lines_of(kernel::print(kernel));
  NewKernels& kept = new_kernels();
  const std::lock_guard lock(kept.mutex);
  if (kept.by_label.size() >= kMostLabels && !kept.by_label.contains(kernel.label)) return {};
  std::vector<NewKernel>& others = kept.by_label[kernel.label];
  const NewKernel* nearest = nullptr;
  std::size_t most = 0;
  for (const NewKernel& other : others) {
    if (other.report == report) continue;
    const std::size_t shared = shared_lines(lines, other.lines);
    if (nearest && shared <= most) continue;
    nearest = &other;
    most = shared;
  }
  const KernelDifference out = nearest ? difference(lines, nearest->lines) : KernelDifference{};
  if (others.size() == kMostOfALabel) others.erase(others.begin());
  others.push_back({std::move(lines), report});
  return out;
}

void forget_new_kernels() {
  NewKernels& kept = new_kernels();
  const std::lock_guard lock(kept.mutex);
  kept.by_label.clear();
}

}  // namespace kiln::engine
