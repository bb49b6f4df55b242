// Values meet elements in row-major order: slots have been sorted.
#pragma once

/// The slot of each index; ~0 where it is out of range.
extern "C" __global__ void __launch_bounds__(256) number_slots(uint64* slots, const Index* indices, Grid g) {
  KILN_EACH(i, g.count) {
    const Spot s = spot_of(g, i);
    int64 position;
    slots[i] =
        resolve(indices[s.index], g.extent, position) ? uint64(s.slot + position * g.slot_step) : ~0ull;
  }
}

/// `order` sorts slots, equal ones by k: `g` are the axes along which indices tell places apart, `across` the
/// others. Where a slot begins, a thread takes its values in turn.
extern "C" __global__ void __launch_bounds__(256)
    combine_in_order(Element* out, const Element* values, const Index* indices, const uint64* slots,
                     const int64* order, Grid g, Grid across) {
  KILN_EACH(i, g.count * across.count) {
    const int64 first = index_div(i, across.count);
    const Spot beside = spot_of(across, i - first * across.count);
    const uint64 slot = slots[order[first]];
    if (slot == ~0ull || (first > 0 && slots[order[first - 1]] == slot)) continue;
    const Spot head = spot_of(g, order[first]);
    int64 position;
    resolve(indices[head.index], g.extent, position);
    Element* const at = out + head.place + beside.place + position * g.place_step;
    Kept x;
    assign(x, *at);
    for (int64 j = first; j < g.count && slots[order[j]] == slot; ++j) {
      Kept value;
      assign(value, values[spot_of(g, order[j]).value + beside.value]);
      x = met<kHow>(x, value);
    }
    assign(*at, x);
  }
}
