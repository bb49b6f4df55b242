#include "ir/custom.h"

#include "support/check.h"

#include <kiln/error.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

namespace kiln::ir {
namespace {

/// Entries stay where they are; never destroyed, since threads may evaluate while the process ends.
struct Kept {
  std::mutex mutex;
  std::deque<CustomCode> all;
};
Kept& kept() {
  static Kept* const instance = new Kept;
  return *instance;
}

}  // namespace

bool is_custom_name(std::string_view name) {
  Kept& k = kept();
  const std::lock_guard lock(k.mutex);
  return std::ranges::any_of(k.all, [&](const CustomCode& code) { return code.name == name; });
}

std::uint32_t keep_custom(CustomCode code) {
  Kept& k = kept();
  const std::lock_guard lock(k.mutex);
  for (std::size_t i = 0; i < k.all.size(); ++i)
    if (k.all[i] == code) return static_cast<std::uint32_t>(i);
  k.all.push_back(std::move(code));
  return static_cast<std::uint32_t>(k.all.size() - 1);
}

const CustomCode& custom_code(std::uint32_t kernel) {
  Kept& k = kept();
  const std::lock_guard lock(k.mutex);
  KILN_CHECK_THAT(kernel < k.all.size(), "no custom kernel has the number ", kernel);
  return k.all[kernel];
}

void run_custom(const CustomCode& code, const KernelCall& call) {
  try {
    code.cpu(call);
  } catch (const UserError& e) {
    const std::string_view message = e.message();
    const std::string mark = cat("[", code.name, "]");
    throw UserError(message.starts_with(mark) ? std::string(message) : cat(mark, " ", message));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw UserError(cat("[", code.name, "] its function threw: ", e.what()));
  } catch (...) {
    throw UserError(cat("[", code.name, "] its function threw something that is no std::exception"));
  }
}

std::vector<std::int64_t> custom_words(KernelNumbers numbers, std::span<const KernelType> others) {
  std::vector<std::int64_t> words = {static_cast<std::int64_t>(numbers.size())};
  words.insert(words.end(), numbers.begin(), numbers.end());
  for (const KernelType& type : others) {
    words.push_back(static_cast<std::int64_t>(type.dtype));
    words.push_back(type.shape.rank());
    words.insert(words.end(), type.shape.begin(), type.shape.end());
  }
  return words;
}

std::string_view name_of(Op op, const Stored& attributes) {
  return op == Op::custom ? std::string_view(custom_code(Custom::from(attributes).kernel).name)
                          : info(op).name;
}

}  // namespace kiln::ir
