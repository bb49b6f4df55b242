#include "transform/reduced_rows.h"

namespace kiln::transform {

ReducedRows reduced_rows(const Graph& graph, NodeId x, std::uint64_t axes, std::int64_t results) {
  const ir::Dims dims = graph[x].dims;
  ReducedRows r{.rows = results, .length = graph[x].numel / results};
  int runs = 0;  // of reduced axes
  bool reduced = false, last = false;
  for (std::size_t a = 0; a < dims.size(); ++a) {
    if (dims[a] == 1) continue;
    last = (axes >> a & 1) != 0;
    runs += static_cast<int>(last && !reduced);
    r.run = last ? 1 : r.run * dims[a];
    reduced = last;
  }
  r.columns = !last;
  r.mixed = runs > 1;
  NodeId stored = x;
  while (graph[stored].op == Op::cast) stored = graph[stored].in[0];
  r.bytes = size_of(graph[stored].dtype);
  return r;
}

}  // namespace kiln::transform
