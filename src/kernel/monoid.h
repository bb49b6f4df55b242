// What every emitter and interpreter must know of a reduction's monoid.
#pragma once

#include "kernel/kernel.h"

#include <span>
#include <vector>

namespace kiln::kernel {

/// Whether its value is the position of the best value.
constexpr bool positional(Monoid m) { return m == Monoid::ArgMax || m == Monoid::ArgMin; }
/// Whether greater is better, where one value is better than another.
constexpr bool greatest(Monoid m) { return m == Monoid::Max || m == Monoid::ArgMax; }
/// Bits of the value that a reduction starts from; 0 for State, which its first value replaces. Pre: not
/// Custom.
std::uint64_t identity(const AccDecl& acc);
/// The same as an expression.
E identity(Kernel& kernel, const AccDecl& acc);
/// Two values combined. Pre: neither positional nor State.
E merge(Kernel& kernel, const AccDecl& acc, E later, E earlier);

// Of a Custom monoid:
std::vector<E> identity_parts(Kernel& kernel, const AccDecl& acc);
/// The parts of a value and of all before it, of which `earlier` are the parts.
std::vector<E> merge_parts(Kernel& kernel, const AccDecl& acc, E later, std::span<const E> earlier);
/// The value of all whose parts these are.
E show_parts(Kernel& kernel, const AccDecl& acc, std::span<const E> parts);

/// Whether its parts are the greatest value and a sum of terms relative to that, as a logsumexp has them: the
/// sums relative to one greatest value are added.
bool sums_relative(const ExprPool& pool, const CustomMonoid& monoid);

}  // namespace kiln::kernel
