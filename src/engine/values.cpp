#include "engine/values.h"

#include "device/device.h"
#include "engine/device_memory.h"
#include "engine/plan.h"

#include <memory>

namespace kiln::engine {

std::vector<std::vector<std::byte>> values_of(const ir::Graph& graph, Device device,
                                              std::span<std::byte* const> args,
                                              std::span<const std::uint64_t> slots) {
  const std::shared_ptr<const Plan> plan = make_plan(graph, device);
  std::vector<ir::Buffer*> buffers;
  run_plan(*plan, args, slots, buffers);
  std::vector<HeldBuffer> made;
  for (ir::Buffer* b : buffers) made.emplace_back(b);
  std::vector<std::vector<std::byte>> out;
  for (std::size_t i = 0; i < graph.roots.size(); ++i) {
    const Plan::Result& r = plan->results[i];
    const ir::GraphNode& n = graph[graph.roots[i]];
    const std::int64_t size = size_of(n.dtype), moved = r.moved == 0 ? 0 : plan->moved(r.moved, slots);
    const std::byte* from = (made[i] ? made[i]->data : args[r.place.index]) + r.offset * size + moved;
    const auto bytes = static_cast<std::size_t>(n.numel * size);
    const HeldBuffer packed(allocate(bytes, device));
    device::at(device).pack(packed->data, from, n.dims, r.strides, n.dtype);
    const std::byte* host = host_memory(*packed);
    out.emplace_back(host, host + bytes);
  }
  return out;
}

}  // namespace kiln::engine
