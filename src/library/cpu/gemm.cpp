#include "library/cpu/gemm.h"

#include "device/cpu/threads.h"
#include "library/cpu/gemm_batches.h"
#include "library/cpu/gemm_direct.h"
#include "library/cpu/gemm_product.h"
#include "library/cpu/gemm_shared.h"
#include "library/cpu/gemm_windows.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

namespace kiln::cpu {
namespace {

template <class T>
std::optional<WindowColumns<T>> windows_of(const Matmul& call) {
  if (!Product<T>::may_have_windows(call)) return std::nullopt;
  return WindowColumns<T>::of(call, window_tile(call));
}

/// Whether windows that are rows, of few filters, rather are columns: halves would be converted as often as
/// windows have them.
template <class T>
bool turns(const Matmul& call) {
  constexpr std::int64_t kMost = 64;
  return kIsHalf<T> && call.n > 1 && call.n <= kMost && call.m > call.n && call.a.row_offsets &&
         call.a.col_offsets && strided(call.b);
}

/// A call as it is multiplied.
template <class T>
struct Arranged {
  Matmul call;
  std::optional<WindowColumns<T>> windows;
  bool turned = false;

  explicit Arranged(const Matmul& of) : call(of) {
    if (turns<T>(of)) {
      call = transposed(of);
      windows = windows_of<T>(call);
      turned = windows.has_value();
    }
    if (turned) return;
    call = of;
    windows = windows_of<T>(of);
  }
  const WindowColumns<T>* columns() const { return windows ? &*windows : nullptr; }
};

class CpuLibrary final : public library::Library {
 public:
  std::size_t workspace_bytes(const Matmul& call) const override {
    if (empty(call) || call.k == 0) return 0;
    return dispatch(call.dtype, [&]<class T>() -> std::size_t {
      if (Product<T>::is_direct(call)) return 0;
      const Shared<T> shared(call);
      if (BatchProduct<T>::fits(shared.call()))
        return shared.bytes() + BatchProduct<T>::workspace_bytes(shared.call());
      const std::size_t items = split_batches(call) ? static_cast<std::size_t>(thread_count()) : 1;
      if (!turns<T>(shared.call()) && Product<T>::has_workspace_for_windows(shared.call()))
        return shared.bytes() + item_bytes<T>(shared.call(), nullptr) * items;
      const Arranged<T> arranged(shared.call());
      return shared.bytes() + item_bytes<T>(arranged.call, arranged.columns()) * items;
    });
  }

  void matmul(const Matmul& call, std::byte* workspace) const override {
    if (empty(call)) return;
    dispatch(call.dtype, [&]<class T>() {
      if (call.k > 0 && Product<T>::is_direct(call)) return run<T>(call, workspace);
      Shared<T> shared(call);
      if (call.k > 0) shared.lay_out(workspace);
      run<T>(shared.call(), workspace + shared.bytes());
    });
  }

 private:
  template <class T>
  static std::size_t item_bytes(const Matmul& call, const WindowColumns<T>* windows) {
    const auto elements = static_cast<std::size_t>(Product<T>::workspace(call, windows));
    return (elements * sizeof(typename ComputeOf<T>::type) + 63) / 64 * 64;
  }

  template <class T>
  static void run(const Matmul& call, std::byte* workspace) {
    T* const out = static_cast<T*>(call.out);
    const std::int64_t count = batches(call), size = call.m * call.n;
    if (call.k == 0) {
      std::fill(out, out + count * size, T{});
      return;
    }
    if (BatchProduct<T>::fits(call)) return BatchProduct<T>(call, workspace).run();
    const Arranged<T> arranged(call);
    const Matmul& as = arranged.call;
    const auto one = [&](std::int64_t i, std::byte* memory) {
      Product<T> product(as, arranged.columns(), arranged.turned, i,
                         static_cast<const T*>(as.a.data) + batch_offset(as, as.a, i),
                         static_cast<const T*>(as.b.data) + batch_offset(as, as.b, i),
                         call.epilogue ? nullptr : out + i * size);
      product.run(reinterpret_cast<typename ComputeOf<T>::type*>(memory));
    };
    if (!split_batches(call)) {
      for (std::int64_t i = 0; i < count; ++i) one(i, workspace);
      return;
    }
    const double work = static_cast<double>(size) * static_cast<double>(call.k);
    const auto grain = static_cast<std::int64_t>(kSerialWork / 2 / work) + 1;
    const std::size_t bytes = item_bytes<T>(as, arranged.columns());
    parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int slot) {
      for (std::int64_t i = begin; i < end; ++i) one(i, workspace + static_cast<std::size_t>(slot) * bytes);
    });
  }
};

template <class C>
class FixedProduct final : public library::FixedCall {
 public:
  explicit FixedProduct(const Matmul& call) : product_(call) {}
  void run(std::span<const std::byte* const> operands, void* out,
           const device::Bound* epilogue) const override {
    product_.run(reinterpret_cast<const C*>(operands[0]), reinterpret_cast<const C*>(operands[1]),
                 static_cast<C*>(out), epilogue, 0);
  }

 private:
  const DirectProduct<C> product_;
};

}  // namespace

std::shared_ptr<const library::FixedCall> fixed_product(const Matmul& call) {
  if (empty(call) || call.k == 0 || batches(call) > 1 || call.unrounded || call.bias || call.addend)
    return nullptr;
  return dispatch(call.dtype, [&]<class T>() -> std::shared_ptr<const library::FixedCall> {
    if constexpr (std::is_same_v<T, typename ComputeOf<T>::type>)
      if (Product<T>::is_direct(call)) return std::make_shared<FixedProduct<T>>(call);
    return nullptr;
  });
}

const library::Library& library() {
  static const CpuLibrary instance;
  return instance;
}

}  // namespace kiln::cpu
