#include "engine/variant_scope.h"

#include "support/thread_own.h"

#include <utility>

namespace kiln::engine {
namespace {

VariantScope*& innermost() {
  struct Own {
    VariantScope* scope = nullptr;
  };
  return thread_own<Own, Own>().scope;
}

}  // namespace

VariantScope::VariantScope(std::optional<Choice> tried)
    : tried(std::move(tried)), before_(std::exchange(innermost(), this)) {}

VariantScope::~VariantScope() { innermost() = before_; }

VariantScope* VariantScope::current() { return innermost(); }

}  // namespace kiln::engine
