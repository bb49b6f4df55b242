#include "library/cuda/search.h"

#include "codegen/cuda/cuda_expr.h"
#include "device/cuda/template_kernels.h"
#include "kernels_templates.h"
#include "library/cuda/axes.h"
#include "support/check.h"

namespace kiln::cuda {

std::string search_source(DType dtype) {
  return cat(template_prologue(), "typedef ", codegen::cuda_memory_type(dtype), " Element;\n",
             codegen::templates::search);
}

void search(const library::Search& call, Stream stream) {
  std::int64_t count = count_of(call.values);
  if (count == 0) return;
  static constexpr const char* kSymbols[] = {"search"};
  const auto& kernels =
      template_kernels(device_of(stream), cat("search_", codegen::cuda_memory_type(call.dtype)), kSymbols,
                       [&] { return search_source(call.dtype); });
  Axes axes = joined_axes(call.values);
  void* out = call.out;
  const void *sorted = call.sorted.data, *values = call.values.data;
  std::int64_t length = call.sorted.dims[0], stride = call.sorted.strides[0];
  std::int32_t right = call.right;
  void* params[] = {&out, &sorted, &values, &axes, &count, &length, &stride, &right};
  launch(kernels[0], thread_each(count), stream, params);
}

}  // namespace kiln::cuda
