// RegionLowering: lowers one region. Internal to src/lower. lower.cpp's run() lists the steps; by topic:
//   region_axes.cpp     the axes: their order, groups, vectors, tiles
//   region_facts.cpp    what the scheduler must know
//   region_kept.cpp     which phases need which values, and which of these are kept
//   region_values.cpp   parameters, buffers, and scalar expressions of indices and entries
//   region_windows.cpp  maps whose operands begin anywhere; region_strips.cpp: several rows a thread
//   region_loops.cpp    the loops that the forms share; maps, rows, tiles, columns
//   region_rows.cpp     rows in batches; region_sums.cpp: accumulators of a phase, and of its blocks
//   region_stripes.cpp  reductions of tall columns with accumulators in memory
//   region_logsumexp.cpp  the logsumexp of elements that are near when they are read again
//   region_folded.cpp   reductions of short columns, several of whose rows share the lanes
//   region_grouped.cpp  a GPU's columns of which adjacent ones have a result together
//   region_scan.cpp     scans: accumulators that are read while their loop runs; long scans in chunks
//   region_while.cpp    loops over the states of an element
//   region_nest.cpp     reductions of reductions along further axes; region_pairs.cpp: those over pairs
//   region_slab.cpp     reductions along different axes of the same values
//   region_both_ways.cpp  the same of values that no block holds: partial results of rows and of columns
//   region_held.cpp     columns that a block keeps in shared memory
//   region_bunch.cpp    short rows, many of which share a block of threads
//   region_turned.cpp   the same on a CPU, where lanes are rows
//   region_product.cpp  the epilogue of a matrix product; region_partners.cpp: of two columns of a row
//   region_made.cpp     an operand that a matrix product makes on the way
//   region_crossed.cpp  reductions of operands that are contiguous along different axes
//   region_split.cpp    partial results of chunks, and the finish section that combines them
//
// Invariant: expressions stand for values in the current environment: the coordinates in axis_, the phase,
// and whether the finish section is being built. Whoever changes one of them calls forget() before asking for
// values again. Parameters are numbered as they are first asked for; lower() makes the numbers canonical.
#pragma once

#include "kernel/monoid.h"
#include "kernel/nouns.h"
#include "lower/lower.h"
#include "lower/pull.h"
#include "lower/region_parts.h"

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace kiln::lower {

using ir::GraphNode;
using ir::NodeId;
using ir::Op;
using namespace kernel::nouns;
using schedule::Form;

/// The part of an axis that one grid item covers.
struct Range {
  E first, count;
};

/// An operand that a product's main loop makes of an array it copies.
struct MadeOperand {
  std::vector<kernel::Hook> hooks;        // b_value, and b_factor if `factored`
  Lowered from;                           // what the hooks need
  std::uint32_t buffer = 0;               // of these: the array
  std::int64_t pitch = 0;                 // from a line of it to the next
  int made_of = 0;                        // bytes of one of its elements
  bool widens = false, as_given = false;  // the hook gets them as floats; and returns them: integers
  bool factored = false;                  // the sums of a column are to be multiplied by b_factor
  int share = 1;                          // of its elements are made of one of the array
  bool nibbles = false;                   // the hook gets integers of four bits as floats
  bool zeroed = false, scaled = false;    // as_given, but for b_zero and b_scale, which 32 of a line share
};

inline bool has_position(Op op) { return ir::has(op, ir::POSITION); }

class RegionLowering : private Roles {
  friend class PairsLowering;

 public:
  RegionLowering(const plan::Graph& graph, const plan::Regions& regions, const plan::Region& region,
                 const schedule::Target& target)
      : g_(graph),
        regions_(regions),
        target_(target),
        product_(region.product),
        second_(region.second),
        partner_(region.partner),
        variants_(region.variants),
        p_(pull(graph, regions, region)),
        k_(out_.kernel) {}

  Lowered run();
  /// Of the first of several products that share a launch; `others` has the rest.
  Lowered run_together(std::span<const plan::Region> others);
  /// Instead of run(), of a region that makes a product's operand.
  std::optional<MadeOperand> make_operand(const plan::MadeOperand& what);
  /// Columns of products that share the launch, which decide on its tiles.
  void expect_columns(std::int64_t columns) { other_columns_ = columns; }
  /// Instead of run(), which has left room for it in Lowered::then: the kernel that combines what the one of
  /// run() has found of rows.
  Lowered run_behind() {
    totals_rows_ = true;
    return run();
  }
  /// Whether the schedule asks for a kernel with its sizes as constants.
  bool knows_sizes() const { return s_.known_sizes; }
  bool reads_partners() const;

 private:
  using Body = std::vector<Stmt>;
  using Fill = std::function<void(Body&)>;
  using Groups = const std::vector<int>&;

  void make();
  void take_part(Lowered part);
  // Steps, in the order of make().
  void measure();
  void collapse(), widen_guards(const std::vector<Group>& axes);
  bool reads_what_it_writes() const;
  void choose();
  void mark_uses(), mark_uses(const std::function<bool(EntryId)>& keep);
  bool may_keep() const, may_keep_columns() const;
  int bytes_to_keep();
  std::int64_t kept_pitch() const, kept_elements(DType type) const;
  E kept_index();
  void keep_values(Body& body);
  int stored_in(const Pulled::Output& o) const;
  void declare_accs();
  void begin();
  void build_loops();
  void note_reductions();
  void forget_quotients();
  void complete();

  // Facts.
  schedule::Facts facts(std::span<const schedule::Facts::Axis> axes);
  void count_results(schedule::Facts& f) const;
  void count_loads(schedule::Facts& f) const;
  void each_index(const std::function<void(const Index&)>& f, bool of_guards = true) const;
  std::vector<Group> axes_as_groups() const;
  void order_by_storage(std::vector<Group>& axes) const;
  void order_short_runs(std::vector<Group>& axes) const;
  void join_reduced();
  int axis_apart() const, axis_repeated() const;
  int loads_along(const Group& along) const, words_of_bunch() const;
  bool differs_inside_rows(const Entry& load) const, all_loads_repeat() const;
  bool crosses(const Entry& e) const;
  void find_tile(schedule::Facts& f);
  int lanes_along_tile() const;
  bool varies(EntryId id);
  bool varies(const Index& index) const;
  bool varies_by_itself(const Entry& e) const;
  std::vector<float> tree_costs() const;
  void find_rough();
  int loads_below(EntryId id);
  bool keep_in_scratch(EntryId id);
  bool walks(const Index& index, const Group& g) const;
  bool adjoins(const Index& index) const;
  int registers_of(const Reduction& r) const;
  float row_prims();
  bool walks_back(const Index& index) const { return index.coef(groups_.back().last) == -1; }
  bool runs_along_last_group(const Index& index, std::int64_t elements, bool& aligned) const;
  int vector_elements() const;
  int flat_vector_elements(bool rows = false, bool shared = false) const;
  bool is_window(const Entry& e, std::int64_t elements) const;
  bool begins_whole(const Entry& e, std::int64_t elements) const;
  bool lanes_decide(const Entry& e, std::int64_t elements) const;
  bool loads_elements(const schedule::Facts& f) const;
  bool begins_at_vectors(const Entry& e) const, begins_strip(const Entry& e) const;
  int breaks_in_row(std::int64_t elements) const;
  void find_windows(schedule::Facts& f) const;
  bool is_same_along(const Index& index, int axis) const;
  double load_cost(const Entry& e, std::int64_t lanes, std::int64_t accesses) const;
  std::set<EntryId> turned_with_others();
  double loads_alone(const schedule::Facts& f, const std::set<EntryId>& turned) const;
  double loads_in_strip(int axis, std::int64_t rows, const std::set<EntryId>& turned) const;
  std::optional<double> loads_in_vectors(int axis, std::int64_t rows, int lanes) const;
  std::int64_t strip_steps(const Index& index, int axis, bool nearest) const;
  void find_strips(schedule::Facts& f);
  bool stores_whole_vectors(NodeId output) const, stores_long_rows(NodeId output) const;
  bool stores_whole_columns(const Pulled::Output& o) const;
  bool index_is_narrow() const;

  // Parameters: see Roles.
  static std::uint64_t role(RoleKind kind, std::uint64_t owner, std::uint64_t part = 0) {
    return kind << 56 | owner << 16 | part;
  }
  /// One parameter for each role, and one value.
  E param(std::uint64_t role, std::int64_t value), unset_param(std::uint64_t role);
  E size(Size which, std::int64_t value) { return param(role(kSize, which), value); }
  E sum_block(std::int64_t length);
  E extent(int group);
  /// x / d for x >= 0, d > 0; and x % d.
  E divide(E x, E d);
  std::pair<E, E> divide_with_rest(E x, E d);

  // Buffers.
  std::uint32_t new_buffer(BufferDecl decl, BufferSource source);
  int last_phase(const Entry& e) const;
  /// Whether a row's elements are read again by later phases.
  bool read_again(const Entry& e) const { return s_.form == Form::Rows && last_phase(e) > 0 && !target_.gpu; }
  std::int64_t bytes_to_later_row(const Entry& e) const;
  std::int64_t bytes_to_next_block(const Entry& e) const;
  std::int64_t bytes_ahead(const Entry& e) const;
  std::int64_t elements_to_next_item(const Index& index) const;
  bool fetched_nearby(BufferSource::Kind kind, std::uint32_t id, std::int64_t offset) const;
  bool moves_buffer(const Term& term) const;
  std::uint32_t input_buffer(const Entry& e, bool at_vectors = true);
  std::uint32_t output_buffer(NodeId node, bool whole, bool ragged = false);
  std::uint32_t scratch_buffer(DType type, std::int64_t bytes);
  std::uint32_t partial_buffer(DType type, std::int64_t results);

  // Expressions of one node.
  E leaf(Prim prim, DType type, std::uint64_t imm) {
    return {&k_.pool, k_.pool.intern({prim, type, kNoExpr, kNoExpr, kNoExpr, imm})};
  }
  E identity_of(const AccDecl& acc) { return kernel::identity(k_, acc); }
  E konst(std::int64_t v) {
    return kernel::constant_bits(k_.pool, DType::Int64, static_cast<std::uint64_t>(v));
  }
  E var(std::uint32_t v) { return leaf(Prim::Var, DType::Int64, v); }
  E acc_value(std::uint32_t acc, DType type) { return leaf(Prim::Acc, type, acc); }
  E load(std::uint32_t buffer, DType type, E index, E predicate = {});
  std::uint32_t new_var() { return k_.n_vars++; }

  // Indices as expressions.
  bool runs_along_lanes(const Index& index) const;
  struct AxisPlace {
    int group = -1, piece = -1;
  };
  AxisPlace place_of(int axis) const;
  static bool walks_as_one(const Index& index, const Group& g);
  E piece_value(const AxisPlace& at);
  E to_expr(const Index& index, std::uint64_t owner, RoleKind kind = kStride);
  E atom_expr(AtomId id);
  E build_atom(AtomId id);
  E link_expr(std::int32_t link), predicate_expr(std::int32_t chain, std::int32_t end);
  E strip_predicate(std::int32_t chain, std::int32_t end);
  std::int32_t predicate_owner(std::int32_t link) const, strip_predicate_owner(std::int32_t link) const;
  E strip_place(std::int64_t steps), strip_load(EntryId id), chosen_place(const Index& index, EntryId owner);
  E base_and_steps(const Index& index, std::uint64_t owner, std::uint64_t owner_of_steps);
  E strip_element(Entry e, std::int64_t steps, E place, EntryId owner, E there);
  std::optional<Turned> find_turned(const Entry& pad);
  E strip_turned(const Entry& pad, const Turned& turned, E there);
  E row_index() { return row_place_ >= 0 ? place_index(sweep_) : to_expr(p_.row_linear(), kRowOwner); }
  E inner_position(DType type), scratch_index(EntryId id, DType type);

  // Entries as expressions.
  void forget() {
    std::fill(memo_.begin(), memo_.end(), E{});
    atom_memo_.clear();
  }
  int first_phase(const Entry& e) const;
  E build(EntryId id);
  void note_origin(E value, NodeId node);
  void note_origins(const Entry& e, kernel::ExprId first);
  EntryId unbuilt_operand(EntryId id) const;
  bool rounds(const Entry& e) const, reads_kept(EntryId id) const;
  E rounded(E value, DType type);
  E build_entry(EntryId id);
  EntryId same_steps(EntryId id) const;
  E build_load(EntryId id);
  bool same_walk(const Entry& a, const Entry& b) const;
  EntryId stride_owner(EntryId id) const, near_window(EntryId id) const;
  E build_pad(EntryId id);
  Index with_steps_of(const Entry& e, const Predicate& p, const Entry& other);
  E turned_load(const Entry& pad);
  E build_scalar(NodeId node);
  bool has_stored_bits(const Entry& e) const;
  E operand(const Entry& e, std::size_t k);
  E build_op(EntryId id);
  E narrow(E value, DType type);
  E narrow_choice(E value, DType type, int depth);
  E multiply_add(const GraphNode& n, const E (&in)[3]);
  E reduce_value(EntryId id);
  const Reduction& reduction(EntryId entry) const;
  Op op_of(const Reduction& r) const { return g_[p_.entries[r.entry].node].op; }

  // Groups, outermost first.
  int last_group() const { return static_cast<int>(groups_.size()) - 1; }
  std::vector<int> reduced_groups(int level = -1) const;
  std::vector<int> kept_groups(std::initializer_list<int> except = {}) const;
  std::int64_t product(Groups list) const, blocks_of(int group) const;

  // The grid, and positions in it.
  LoopDecl open_grid();
  void close_grid(LoopDecl grid, std::int64_t items);
  void decompose(E position, Groups groups);
  E block_of(E position, Groups outer, std::int64_t blocks);
  Range block_range(E block, E length, E whole);
  Range block_range(E block, E length, int group) { return block_range(block, length, extent(group)); }

  // Loops and statements.
  Stmt loop(LoopDecl decl);
  void put_on_lanes(LoopDecl& loop) const;
  Stmt lane_loop(const Range& range, Groups axes, const Fill& fill);
  void place_together(Groups order, E first, E at, bool vector);
  std::vector<LoopDecl> open_together(Groups order, const std::optional<Range>& part, bool vector,
                                      std::int64_t in_blocks);
  E whole_of(Groups order);
  std::vector<LoopDecl> open_nest(Groups order, const std::optional<Range>& outermost);
  bool adds_in_blocks(const Reduction& r) const, adds_in_blocks(bool bounded) const;
  bool bound_sums(std::int64_t elements);
  void compensate_sums();
  AccDecl total_decl(const Reduction& r, const AccDecl& a);
  E total_of(std::uint32_t acc, const GraphNode& n);
  E total_of(const Reduction& r);
  std::int64_t added_up(Groups order, bool in_chunks, std::int64_t lanes) const;
  std::size_t cut_sums(std::vector<LoopDecl>& nest, Groups order, const std::optional<Range>& outermost,
                       std::int64_t lanes, std::int64_t limit, bool always = false);
  std::int64_t shared_length(std::int64_t limit, std::int64_t elements) const;
  LoopDecl fold(std::vector<LoopDecl> nest);
  LoopDecl fold_from(std::vector<LoopDecl>& nest, std::size_t from);
  Stmt store(std::uint32_t buffer, E index, E value);
  void store_outputs(Body& body, bool row, std::initializer_list<int> phases);
  void store_full(Body& body) { store_outputs(body, false, {phase_}); }
  void store_level(Body& body, int level);
  void store_output(Body& body, const Pulled::Output& o);
  void store_rows(Body& body, std::initializer_list<int> phases) { store_outputs(body, true, phases); }
  void phase_body(Body& body);
  void enter_row(int row, const std::vector<std::vector<std::uint32_t>>& accs);
  void phase_loops(Body& into, Groups order, bool vector, const std::optional<Range>& outermost = {});
  std::vector<std::vector<std::uint32_t>> begin_reductions(std::vector<LoopDecl>& nest, std::size_t inner,
                                                           bool cut);
  Body add_blocks(const std::vector<std::vector<std::uint32_t>>& inside);

  // Logsumexps by two loops.
  enum class Reading : std::uint8_t { Once, First, Again };
  bool may_read_twice(const Reduction& r) const, reads_twice(const Reduction& r) const;
  std::uint32_t new_acc(const AccDecl& decl);
  AccDecl greatest_decl(DType type);
  kernel::CustomMonoid greatest_half(DType half);
  DType compared_type(EntryId id) const;
  E compared(const Reduction& r, E x), greatest_of(const Reduction::Relative& r);
  static E finite(E x);
  bool takes_halves(const Reduction& r) const;
  RelativeTo relative_to(E greatest, bool halves);
  E relative_exp(E x, const RelativeTo& to), relative_total(const Reduction::Relative& r);
  void sum_relative(Body& into, std::vector<LoopDecl> nest, int group, std::int64_t block);
  bool only_relative(Groups order) const;
  void all_phases(Body& body, bool vector);

  // Forms.
  void build_map(), build_rows(), build_row_batches(), finish_rows(Body& into, const Range& rows, int phase);
  std::vector<EntryId> values_of_rows(int phase);
  bool gathered_by_columns(const Entry& e) const;
  void keep_columns(Body& into, const Range& columns);
  void build_rows_inside(LoopDecl grid, Groups row), build_tiles();
  void build_rounds(LoopDecl grid, Groups outer, Groups together), build_strips();
  std::pair<E, std::int64_t> enter_tile(E item);
  bool reduces_tiles() const, may_reduce_tiles() const, reads_far_apart(Groups together) const;
  E block_in_turn(E item, Groups together, std::int64_t parts, std::int64_t& items);
  std::vector<int> groups_around_tiles() const;
  std::pair<Range, E> enter_tile_rows(E number);
  std::int64_t count_tiles() const, tile_pitch(DType type) const, row_pitch(DType type) const;
  void reduce_tile(Body& body, E group, E chunk), reduce_tiles(Body& body, E chunk);
  void stage_tile(Body& body, const Range& rows, const Range& columns, Groups column_groups);
  Stmt loop_over_tile(const Range& rows, const Range& columns, Groups column_groups);
  E tile_index(DType type);
  E tile_value(std::uint32_t buffer);
  void build_columns(), build_bunch();
  std::vector<int> column_groups() const;
  std::pair<Range, std::int64_t> enter_columns(E item, E block_length);
  bool is_held(const Entry& e) const, passes_often(const Entry& e) const;
  void hold_columns(Body& into, const Range& columns);
  E column_index(DType type);
  void build_tiled_columns();
  bool runs_through(const Index& index) const;
  bool bunched(const Entry& e) const;
  bool runs_in_slabs(const Index& index) const, bunches_in_runs(std::int64_t elements) const;
  void find_bunch(schedule::Facts& f) const;
  E bunch_index(DType type);
  std::uint32_t bunch_tile(DType type, std::int64_t elements);
  Stmt copy_loop(const Range& elements, const Fill& fill);
  bool one_for_a_slab(const Entry& e) const, read_by_slabs(const Entry& e) const, bunches_by_runs() const;
  std::vector<int> slab_groups(bool reduced_too = true) const;
  E turned_index(Groups inside, DType type);
  E result_index(const Pulled::Output& o);
  void turn_operands(Body& into, const Range& slabs);
  void turn_results(Body& into, const Range& slabs, const Pulled::Output& o, std::uint32_t tile);
  int axis_folded() const;
  bool has_turns_as_positions(int folded) const;
  bool has_positions() const;
  E beats(const Reduction& r, E x, E before) const;
  E lane_value_at(const Reduction& r, E position);
  void keep_position(Body& body, const Reduction& r, E begin);
  E position_of_point(Body& body, const Reduction& r);
  bool folds_in_blocks() const;
  void place_lane(int group, E at);
  std::vector<int> folded_groups(bool kept, bool reduced) const;
  E place_among(Groups groups);
  Stmt fold_loop(E lanes, const Fill& fill);
  void fold_phase(Body& into, E first, E count, const std::optional<Range>& chunk);
  AccDecl combined_decl(const Reduction& r);
  Stmt combine(std::uint32_t acc, E value);
  void combine_lanes(Body& into);
  void at_points(Body& into, const Fill& fill);
  E folded_value(const Reduction& r);
  void make_fold_buffers();
  void build_folded(), build_grouped(), build_turned();
  Stmt over_points(const Range& columns, const Fill& fill);
  void combine_group(Body& into, const Range& columns), make_group_buffers();
  bool columns_in_groups(int first) const;
  std::vector<int> rows_of_columns() const;
  int grouped_vector_elements(int folded) const;
  void build_stripes(), build_split(), build_nest(), inner_level(Body& body);
  void build_slab(), stage_slab(Body& into, const Range& slab), keep_outputs();
  void sweep(Body& into, int place, const Fill& fill);
  void shared_sweep(Body& into, int place, const Fill& fill);
  int parts_for(std::int64_t points) const;
  void reduce_sweep(Body& into, int place);
  void store_sweep(Body& into, int place, int phase);
  std::vector<int> groups_of(int place, bool inside) const, groups_of_repeats(Groups outer) const;
  E row_position(int place);

  // Rows and columns by one reading.
  bool reads_both_ways() const;
  void go_both_ways(), build_both_ways(), build_row_totals(), make_row_buffers(), across_rows(Body& body);
  int column_place() const { return 3 - row_place_; }
  std::vector<int> row_groups(bool kept) const;
  std::int64_t parts_of_row() const;
  const Pulled::Output* whole_row(const Reduction& r) const;
  bool totals_behind() const;
  E place_index(int place), part_index(E part);

  bool runs_here(const Reduction& r) const { return r.phase == phase_ && (sweep_ < 0 || r.place == sweep_); }

  // Scans.
  AccDecl acc_decl(Op op, DType type);
  AccDecl scan_decl(const Scan& s);
  std::uint32_t log_add_exp(DType type);
  bool runs_now(const Scan& s) const;
  bool begins_behind(const AccDecl& acc) const;
  void find_starts();
  void declare_scans(LoopDecl& outermost);
  void scan_updates(Body& body);
  void build_chain(), chain_totals(Body& body, E item, const Range& range);
  void link_chunks(Body& body, E item, E chunk);
  Range early_chunk(E row, E chunk);
  E begins_early(E row);
  void add_totals(Body& body, E item, E chunk);
  E bytes_to_next_chunk(const Entry& e);

  // Loops inside the body.
  E loop_result(EntryId id);
  void run_loop(std::int32_t run);
  void run_loops_outside(std::int32_t run);
  void store_yields(const LoopRun& run, std::uint32_t iteration);
  bool stores_now(const LoopRun::Yield& y) const;
  bool streams_past(const LoopRun::Yield& y) const;

  // Products.
  static DType sum_type(DType element);
  void collapse_product(), collapse_partners(), choose_product();
  E product_value(const Entry& e);
  void build_product(), build_template();
  std::vector<NodeId> products() const;
  DType stored_element() const;
  ProductOperand second_operand(kernel::Template& t, NodeId product);
  ProductOperand product_operand(NodeId id), window_operand();
  kernel::Hook matrix_hook(const char* name, const ProductOperand& operand, E batch, E part);
  std::optional<device::TiledBuffer> tiled(const ProductOperand& operand, bool k_major, std::int64_t rows,
                                           std::int64_t k, std::int64_t batches, bool rows_last) const;
  void choose_window_loop(kernel::Template& t, const ProductOperand&, const ProductOperand&, std::int64_t);
  void choose_gathering_loop(kernel::Template&, const ProductOperand&, const ProductOperand&, std::int64_t);
  void choose_main_loop(kernel::Template& t, const ProductOperand& a, std::span<const ProductOperand> b,
                        std::int64_t batches, std::int64_t m);
  void add_epilogue(kernel::Template& t, bool one_matrix);
  bool spreads_columns() const;
  static bool has_whole_tiles(std::int64_t m, std::int64_t n, std::int64_t tile, std::int64_t products);
  void add_decode_constants(kernel::Template& t, const ProductOperand& b, std::int64_t rows,
                            std::int64_t blocks) const;

  // Operands that are made.
  bool collapse_lines(std::int64_t length);
  std::int64_t pitch_of(const Entry& e) const;
  EntryId find_copied() const;
  int share_of(const Entry& e) const;
  bool only_widened(EntryId id) const, is_bounded(EntryId id) const;
  bool is_same_along(EntryId id, const std::vector<int>& groups) const;
  EntryId find_nibbles() const, without_casts(EntryId id) const;
  std::optional<Quantized> quantized(EntryId id, DType element) const;
  std::vector<EntryId> factors_of_columns(const plan::MadeOperand& what) const;
  kernel::Hook factor_hook(const char* name, std::span<const EntryId> factors, std::span<const E> at);
  kernel::Hook value_hook(EntryId value, std::uint32_t made, std::span<const E> at);
  std::int64_t alignment_of(const BufferSource& source, std::int64_t pitch_bytes) const;
  std::vector<kernel::Hook> adopt(std::vector<kernel::Hook> hooks, const Lowered& from);

  // Stripes.
  E stripe_index(std::uint32_t buffer), identity_in(const Reduction& r);
  E stripe_load(const Reduction& r, bool position), stripe_part(const Reduction& r, std::size_t part);
  AccDecl block_decl(const Reduction& r);
  std::vector<E> block_parts(const Reduction& r);
  void reset_block(Body& body, const Reduction& r), stripe_reset(Body& body);
  E block_total(const Reduction& r, E before);
  void begin_twice(Body& to, const Reduction& r), turn_total(Body& to, const Reduction& r);
  void add_to_total(Body& to, const Reduction& r), stripe_update(Body& to, const Reduction& r);
  std::uint32_t stripe_buffer(DType type);
  std::vector<Stmt> stripe_scans();
  void stripe_relative(Body& into, std::vector<LoopDecl> nest, const Range& columns);
  void stripe_row(Body& body);
  void stripe_phase(Body& into, const Range& columns, const std::optional<Range>& chunk);

  // Chunks of the outermost reduced axis, and the finish section.
  void declare_chunks(), reduce_chunk(Body& body, E chunk), store_partials(Body& body, E chunk);
  void over_group(Body& into, E group, Groups columns, E block_length, const Fill& fill);
  void build_finish(std::int64_t groups, Groups columns, E block_length, const std::vector<AccDecl>& accs);
  void share_columns();
  Stmt finish_update(const Reduction& r, E at);
  E value_at_position(const Reduction& r, E position);

  const plan::Graph& g_;
  const plan::Regions& regions_;
  const schedule::Target& target_;
  const NodeId product_, second_;              // of a contraction, or kNoNode
  const std::int64_t partner_;                 // see plan::Region
  const plan::WindowView* windows_ = nullptr;  // of a contraction that reads them where they lie
  const std::optional<std::vector<FusionVariant>> variants_;  // see plan::Region
  Pulled p_;
  Lowered out_;
  Kernel& k_;  // out_.kernel

  // Facts and the schedule that they led to.
  std::vector<Group> groups_;
  std::vector<Reduction> reductions_;
  std::vector<Scan> scans_;
  float prims_ = 0;
  int phases_ = 0, widest_bytes_ = 1;
  bool random_ = false;
  schedule::Schedule s_;
  std::optional<NestOfPairs> pairs_;                            // Nest: by the main loop for those
  std::vector<int> batch_groups_, row_groups_, column_groups_;  // Product: none: of one element
  bool unaligned_ = false;                     // Product, GPU: lanes are no whole vectors of memory
  bool narrow_ = true;                         // Product, GPU: indices of hooks fit 32 bits, so far
  std::int64_t other_columns_ = 0;             // Product, GPU: of others in the launch
  std::vector<int> line_groups_, run_groups_;  // of an operand that is made: lines, and along one
  EntryId copied_ = kNoEntry;                  // what comes with the hook's calls: a load, or its nibbles
  std::uint32_t copied_buffer_ = 0;            // and their array
  DType copied_type_ = DType::Float32;

  // What exists in the kernel.
  std::map<std::uint64_t, std::uint32_t> params_;  // by role
  std::map<NodeId, std::uint32_t> out_buffer_;
  std::vector<std::int32_t> scratch_;  // per entry: its scratch buffer, or -1
  std::vector<std::int32_t> columns_;  // Stripes: likewise, of what is read once for each column; or empty
  std::vector<int> tile_rows_;         // Tiles: the groups that staged loads run along, outermost first
  std::vector<std::int32_t> staged_;   // the same, per entry: the scratch buffer of its tile, or -1
  std::vector<bool> varies_;           // per entry, once asked for
  std::vector<bool> rough_;            // per entry: only half types will hold what is made of it

  // The environment of expressions, and their values in it.
  int phase_ = 0;
  Reading reading_ = Reading::Once;  // which of two loops is built
  int cut_group_ = -1;               // the group that cut_sums cut last, and the length of its blocks
  std::int64_t cut_length_ = 0;
  int sweep_ = -1;            // Slab, both ways: the place whose reductions run, or -1
  int row_place_ = -1;        // both ways: the place of rows
  bool totals_rows_ = false;  // … the kernel behind is built
  E row_part_;                // … which of its parts a row has here
  bool in_finish_ = false;
  struct Storing {
    bool rows = false;         // outputs of rows, or the others
    std::uint64_t phases = 0;  // bit set
  };
  Storing storing_;         // which outputs are stored in this environment
  std::vector<E> axis_;     // per group: its coordinate
  E lane_;                  // the variable of the loop on lanes
  E position_;              // position along the axes that share the lanes, if several do
  std::vector<int> along_;  // those
  // Folded: the first point on lanes, times that the lanes are used, the lane's point among these, and the
  // turn
  E fold_first_, fold_rows_, fold_row_, fold_turn_;
  bool at_points_ = false;        // Folded: lanes are kept points
  bool stores_later_ = false;     // Folded: whole outputs are made of the last reductions
  bool placed_together_ = false;  // they are those of a loop over reduced axes
  E tile_first_, strip_first_;    // Columns with a tile of results: its first row and column, …
  E strip_step_;                  // … and the columns to its next strip
  std::int64_t strip_row_ = -1;   // Rows, a map by strips: the row at hand, behind tile_first_
  std::vector<std::vector<std::uint32_t>>
      tile_accs_;              // of each row of the tile: the accumulators of the reductions
  std::vector<bool> bounded_;  // accumulators that combine few values
  bool loads_repeat_ = false;  // all of them: more time goes into what is made of elements than into reading
  E batch_row_, inner_, early_;  // the row in its batch; the position inside a row; see LoopDecl::early
  E tile_row_, tile_column_;     // Tiles: position in the tile
  E bunch_first_, bunch_at_, bunch_shift_;  // Bunch: its first element; the one being copied; see bunch_index
  std::map<NodeId, std::uint32_t> bunch_out_;  // where results wait until they are copied to memory
  std::uint32_t sums_buffer_ = 0;  // Product: the sums, and where the row at hand begins among them
  std::uint32_t second_sums_ = 0;  // of the second product
  E sums_row_;
  std::vector<E> memo_;            // per entry
  std::map<AtomId, E> atom_memo_;  // atoms share what they are made of
  std::vector<NodeId> origins_;    // per expression: the node whose value it is a part of
  std::vector<EntryId> building_;  // operations that wait for operands, the innermost last
  Body* body_ = nullptr;           // where the statements go that values need: loops
  // Chunks.
  std::int64_t chunks_ = 1, rows_ = 1, bunch_words_ = 1;  // rows: of the finish section; see words_of_bunch
  E n_chunks_, n_rows_;                                   // the same as parameters
  E chunk_base_;  // Stripes in chunks: where the chunk's partial results begin
  E item_;        // Chain, its second section: the chunk, whose prefixes are combined into the scans
};

}  // namespace kiln::lower
