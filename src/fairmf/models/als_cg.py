"""Solve the half-steps of ALS by conjugate gradients in the eigenbasis (docs/mathematics.md 5, docs/performance.md).

Order of calls in an epoch:

1. `epoch(problem, state, ...)` gets U, V, the coupling vector q and the Gramians of the last epoch.
2. `users`: `Backend.diagonalise` alpha0 G_V; both sides are turned into its eigenbasis, and are never turned back.
   It may keep the basis of the users' last half-step instead: there the users still are (`unturned_users`).
3. `users`, fairness > 0: estimate how the mean user t responds to q: `grouped_response` or `sampled_response`.
4. `users`, in rounds: `Backend.improve` the rows, then `corrected` q and, with it, all users.
5. `epoch`: `Backend.diagonalise` alpha0 G_U + lambda_f t t'; both sides are turned into its eigenbasis.
6. `epoch`: `Backend.improve` the items. F after the epoch is a by-product of this.

Users or items with features first get a better map (feature_maps.py), in the basis in which they are then improved.

After the last epoch, `finish` takes steps 2 to 4 again, to convergence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fairmf.backends.contract import Backend, Effort, Factors, HalfStep, Matrix, Vector
from fairmf.models import feature_maps
from fairmf.models.fit_loop import NOT_IN_OLD_FILES, NOT_STORED, State
from fairmf.models.objective import Objective, l2_squares
from fairmf.models.problem import Problem


@dataclass(frozen=True)
class AlternatingState(State):
    """Factors, the coupling vector q in the factors' basis, and by-products of the last half-step."""

    coupling: Vector
    item_gramian: Matrix
    merit_gramian: Matrix
    """V' W^2 V: the same as `item_gramian` where items have no fairness weights."""
    objective: Objective
    rotation: Matrix
    """Turns the basis of the last users' half-step into that of the items', in which the factors are."""
    mean_user: Vector | None = field(default=None, metadata=NOT_IN_OLD_FILES)
    """The mean of the users, in the factors' basis; None after the last half-step, and in old checkpoints."""
    unturned_users: Factors | None = field(default=None, metadata=NOT_IN_OLD_FILES)
    """The users in the basis of their half-step: the next one may keep it, and then needs no product for them. None
    where no basis is kept, where there are many rows, and where users are in other processes."""
    guesses: bool = field(default=False, metadata=NOT_STORED)
    """Whether an epoch may keep the bases of the last one. What that leaves off the diagonal costs a product over the
    rows. Where there are few, or on a device, eigenvectors take longer."""
    moves: bool = field(default=False, metadata=NOT_IN_OLD_FILES)
    """Whether F fell so far in the last epoch that the bases move too."""
    user_gradient: float = 0.0
    item_gradient: float = 0.0
    effort: int = 0
    """The rung of the ladder of efforts in als.py: raised where F rose, lowered again when all goes well."""
    item_predicted: Factors | None = None
    """Predictions of the items' features (X M), turned with the factors: that costs less than the product."""


@dataclass(frozen=True)
class EpochEffort(Effort):
    """Hold how thoroughly an epoch solves its half-steps: the rows' effort, and the rounds for the users and q."""

    rounds: int = 1
    """The users' half-step repeats (improve rows, correct q) up to this many times."""
    sampled: bool = False
    """Measure the users' response to q on a sample, rather than estimate it."""
    settled: float = 1e-4
    """No further round follows a correction of q by at most this, relative to q."""


# One step per row, made 1.3 times as long: over-relaxation makes up for what one step leaves (docs/performance.md).
LIGHT = EpochEffort(steps=1, relaxation=1.3)
# A second step where one is not enough: with a small unobserved weight, which leaves the preconditioner little but L2,
# and under strong fairness, which moves q far in an epoch.
FIRM = EpochEffort(steps=2, relaxation=1.3)
MOST_STEPS = 100  # of rows that stop as soon as they are solved
# Close to the exact half-step, for data on which the preconditioner is weak. Rows stop as soon as they are done.
THOROUGH = EpochEffort(steps=MOST_STEPS, rounds=10, tolerance=1e-4, sampled=True)
# The rounds before the last half-step. Two steps a row are enough, because the next correction moves q anyway. `finish`
# divides `settled` by 1 + fairness: at fairness 1 the last correction is below 1 %, and leaves about a tenth of that.
SETTLING = EpochEffort(steps=2, rounds=10, tolerance=0.1, settled=2e-2)
MOVING = 0.03  # an epoch that lowers F by more than this part of it moves the bases too far to be kept in the next one
# With so many factors, and so few users and items per factor, eigenvectors take long beside products over the rows.
MANY_FACTORS, FEW_ROWS = 128, 48


def epoch(problem: Problem, state: AlternatingState, fairness: float, effort: EpochEffort) -> AlternatingState:
    """Run one epoch: users, then items."""
    backend = problem.backend
    done = users(problem, state, fairness, effort)
    U, V, q, t = done.user_factors, done.item_factors, done.coupling, done.mean_user
    # Step 5: into the eigenbasis of what all items' matrices share, alpha0 G_U + lambda_f t t'. With one step per row
    # the last rotation is a good guess, which may save the eigenvectors (see Backend.diagonalise).
    gramian_u = backend.gramian(U)
    common, own = problem.lambda_f, None
    if (weights := problem.fairness_squares) is not None:
        common, own = problem.fairness_pull(weights, t)
    matrix = problem.unobserved_weight * gramian_u
    pull = np.sqrt(common) * t
    matrix += np.outer(pull, pull)
    guess = done.rotation.T if state.guesses and not state.moves and effort.steps == 1 else None
    values, vectors, rest = backend.diagonalise(matrix, problem.least_item_ridge, guess)
    unturned = None if state.unturned_users is None else U
    if unturned is None:
        U = backend.turned(U, vectors)
    else:
        U = backend.empty(*U.shape)
        backend.multiply(unturned, vectors, U)
    if rest is not None and unturned is not None:  # the basis in which the items already were
        backend.put(state.item_factors, slice(None), V)
    else:
        V = backend.turned(V, vectors)
    q, t = vectors.T @ q, vectors.T @ t
    user_map = item_map = own_right = predicted = None
    if problem.has_features:
        user_map = feature_maps.turned(backend, done.user_map, vectors)
    if problem.item_side is not None and state.item_map is not None:
        both = done.rotation @ vectors
        known = feature_maps.turned(backend, state.item_predicted, both)
        last_map = feature_maps.rotated(backend, state.item_map, both)
        item_map, predicted = problem.item_side.improved_map(backend, last_map, V, predicted=known)
        own_right = problem.item_side.own(backend, predicted)
    own = None if own is None else own._replace(vector=t)
    dislikes = problem.dislikes
    if dislikes is not None:
        own_right = dislikes.right(backend, dislikes.by_item, U, own_right)
    # Step 6. Items have no coupling: their shift is 0.
    step = HalfStep(backend, problem.interactions.by_item, U, values, problem.item_ridge, np.zeros_like(q), own)
    sums = backend.improve(replace(step, rest=rest, own=own_right), V, effort)
    gramian_v = backend.gramian(V)
    merit_gramian = problem.merit_gramian(V, gramian_v)
    # sum(shared * G_V) is the unobserved term plus the fairness that all items share; `shared` is nearly diagonal here.
    shared_sum = values @ np.diag(gramian_v) + (0.0 if rest is None else (rest * gramian_v).sum())
    unevenness = t @ merit_gramian @ t
    # All numbers at once, because each read waits for the device.
    loss, item_squares, user_squares, at_users, at_items, shared, merit, squares = backend.numbers(
        sums.loss,
        sums.ridge_squares if item_map is None
        else l2_squares(backend, problem.item_side, item_map, V, problem.item_ridge, predicted),
        backend.weighted_squares(U, problem.user_ridge).sum() if user_map is None
        else l2_squares(backend, problem.user_side, user_map, U, problem.user_ridge),
        done.squared_residual, sums.squared_residual, shared_sum, unevenness,
        unevenness if merit_gramian is gramian_v else t @ gramian_v @ t,
    )  # fmt: skip
    value = Objective(
        observed=0.5 * (loss if dislikes is None else loss + dislikes.change(backend, U, V)),
        unobserved=0.5 * shared - 0.5 * common * squares,  # without the fairness in `shared`, which is counted below
        l2=0.5 * (user_squares + item_squares),
        fairness=0.5 * problem.lambda_f * merit,
    )
    user_gradient, item_gradient = (float(np.sqrt(square)) for square in (at_users, at_items))
    return replace(
        state, user_factors=U, item_factors=V, coupling=q, item_gramian=gramian_v, merit_gramian=merit_gramian,
        objective=value, user_gradient=user_gradient, item_gradient=item_gradient, rotation=vectors,
        mean_user=t, unturned_users=unturned, moves=value.total < (1 - MOVING) * state.objective.total,
        user_map=user_map, item_map=item_map, item_predicted=predicted,
    )  # fmt: skip


@dataclass(frozen=True)
class Users:
    """The result of the users' half-step: both sides in the eigenbasis of alpha0 G_V."""

    user_factors: Factors
    item_factors: Factors
    coupling: Vector
    mean_user: Vector
    eigenvalues: Vector
    squared_residual: float
    rotation: Matrix
    user_map: Factors | None
    own: Factors | None
    """The part of each user's right-hand side that comes from features and dislikes."""


def users(
    problem: Problem, state: AlternatingState, fairness: float, effort: EpochEffort, keep_map: bool = False
) -> Users:
    """Improve the users, q with them and their map before them (unless `keep_map`); the given state stays as it is."""
    backend = problem.backend
    # Step 2. Copies, because the state must survive an epoch that is run again.
    shared = problem.unobserved_weight * state.item_gramian
    guess = state.rotation.T if state.guesses and not state.moves and effort.steps == 1 else None
    # Users without interactions are solved without what is off the diagonal: right only where q is 0, and so they are.
    if guess is not None and fairness > 0 and problem.has_empty_users:
        guess = None
    values, vectors, rest = backend.diagonalise(shared, problem.least_user_ridge, guess)
    U, V = (backend.empty(*x.shape) for x in (state.user_factors, state.item_factors))
    if rest is not None and state.unturned_users is not None:  # the basis in which they already were
        backend.put(state.unturned_users, slice(None), U)
    else:
        backend.multiply(state.user_factors, vectors, U)
    backend.multiply(state.item_factors, vectors, V)
    q: Vector = vectors.T @ state.coupling
    user_map = own = None
    if problem.has_features:
        user_map = feature_maps.turned(backend, state.user_map, vectors)
        if keep_map:
            own = feature_maps.own_right(backend, problem.user_side, user_map)
        else:
            user_map, own = feature_maps.improved(backend, problem.user_side, user_map, U)
    if problem.dislikes is not None:
        own = problem.dislikes.right(backend, problem.dislikes.by_user, V, own)
    # Step 3. C = phi alpha0 G_W is diagonal in this basis unless items have fairness weights.
    strength: Vector | Matrix = fairness * values
    response: Vector | Matrix = np.zeros_like(q)
    if problem.fairness_squares is not None:
        strength = fairness * problem.unobserved_weight * (vectors.T @ state.merit_gramian @ vectors)
    if fairness > 0:
        response = (sampled_response if effort.sampled else grouped_response)(problem, values, V)

    def correct(q: Vector, t: Vector) -> tuple[Vector, Vector]:
        """Return the q that fits users with the mean t, and their mean after moving all by their response to it."""
        off_diagonal = None if rest is None or strength.ndim == 2 else fairness * (rest @ t)
        better, change = corrected(backend, q, t, strength, response, off_diagonal)
        backend.add_vector(change, U)
        return better, t + change

    # Step 4.
    step = HalfStep(backend, problem.interactions.by_user, V, values, problem.user_ridge, q, rest=rest, own=own)
    squared_residual = 0.0
    if fairness > 0:
        # V, and so G_V, has moved since q was set. Users in other processes may have been computed again.
        known = state.mean_user if problem.holds_users else None
        q, t = correct(q, backend.mean(U) if known is None else vectors.T @ known)
    rounds = effort.rounds if fairness > 0 else 1
    for number in range(rounds):
        sums = backend.improve(replace(step, shift=q), U, effort)
        squared_residual = squared_residual if number else sums.squared_residual
        if fairness > 0:
            before = q
            q, t = correct(q, backend.mean(U))
            # The norms are read only if another round may follow: reading them waits for the device.
            if number + 1 < rounds and np.linalg.norm(q - before) <= effort.settled * np.linalg.norm(q):
                break
    if fairness == 0:
        t = backend.mean(U)
    return Users(U, V, q, t, values, squared_residual, vectors, user_map, own)


def finish(problem: Problem, state: AlternatingState, fairness: float, sampled: bool) -> AlternatingState:
    """Solve the users' half-step to convergence: stored users then equal their own fold-in with the q that is kept."""
    backend = problem.backend
    # The tolerance is for backends that ignore the accuracy, and for rows that start at 0.
    last = EpochEffort(MOST_STEPS, tolerance=1e-5, accuracy=0.02 * backend.tolerance)
    rounds = SETTLING
    if sampled:  # as on hard data, where the error that a loose tolerance leaves would show in F
        rounds = replace(SETTLING, steps=MOST_STEPS, sampled=True, tolerance=1e-3, settled=2e-4)
    # q should be C t. A correction moves it by about |C t - q| / (1 + fairness): under strong fairness a small move may
    # hide a large gap.
    rounds = replace(rounds, settled=rounds.settled / (1.0 + fairness * problem.largest_fairness_square))
    done = users(problem, state, fairness, rounds if fairness > 0 else last, keep_map=True)
    rows, V = problem.interactions.by_user, done.item_factors
    if fairness > 0:  # q stays fixed from here on: solve the rows to convergence for it
        step = HalfStep(backend, rows, V, done.eigenvalues, problem.user_ridge, done.coupling, own=done.own)
        backend.improve(step, done.user_factors, last)
    gramian, item_map, predicted = backend.gramian(V), None, None
    if problem.item_side is not None:
        item_map = feature_maps.turned(backend, state.item_map, done.rotation)
        item_map, predicted = feature_maps.settled(backend, problem.item_side, item_map, V)
    return replace(
        state, user_factors=done.user_factors, item_factors=V, coupling=done.coupling,
        item_gramian=gramian, merit_gramian=problem.merit_gramian(V, gramian), user_map=done.user_map,
        item_map=item_map, item_predicted=predicted, unturned_users=None, mean_user=None,
    )  # fmt: skip


# -- the coupling of the users ----------------------------------------------------------------------------------------
#
# One vector q = phi alpha0 G_W t is subtracted from every user's right-hand side: H_i u_i = b_i - q. t is the mean of
# the u_i, so q must satisfy q = C t(q) with C = phi alpha0 G_W. t(q) is affine with slope -A, A the mean of H_i^-1
# (docs/mathematics.md 5). G_W = V' W^2 V is G_V unless items have fairness weights.

SAMPLE = 512  # users whose exact response stands for all
GROUPS = 64  # groups of users with equal weight; beyond this many, neighbouring groups are merged


@dataclass(frozen=True)
class UserGroups:
    """Users grouped by their sum of confidences, on which their L2 weight depends; few groups for binary data."""

    sums: Vector
    ridge: Vector
    shares: Vector
    popularity: Vector
    """Sum of the confidences of every item."""
    interactions: float
    """Sum of all confidences."""

    @classmethod
    def of(cls, problem: Problem) -> UserGroups:
        """Group a problem's users."""
        sums, ridge, counts = problem.user_groups(GROUPS)
        own, popularity = problem.backend.vector, problem.item_sums
        return cls(own(sums), own(ridge), own(counts / counts.sum()), popularity, float(popularity.sum()))


def grouped_response(problem: Problem, eigenvalues: Vector, V: Factors) -> Vector:
    """Estimate A's diagonal in the eigenbasis of alpha0 G_V: how much t falls per unit of q.

    Between two bounds. D, the mean of 1/(eigenvalue + ridge_i), leaves the data term out and is at least A: with it
    the correction cannot overshoot, but is slow where unobserved_weight is small. Adding a typical data term, the
    popularity-weighted mean of v_jk^2 times the user's sum, gives about the mean of 1/diag(H_i), which is below A
    and may overshoot. One quarter of the first and three quarters of the second converged on all data we tried.
    """
    groups = problem.cached("user_groups", lambda: UserGroups.of(problem))
    typical = problem.backend.weighted_squares(V, groups.popularity) / groups.interactions
    return problem.backend.mean_response(groups.shares, groups.ridge, groups.sums, eigenvalues, typical, 0.75)


def sampled_response(problem: Problem, eigenvalues: Vector, V: Factors) -> Matrix:
    """Compute A on a sample of users spread evenly along their sums of confidences (all, if they are few).

    Costs SAMPLE Cholesky factorisations. The sampled A is a few per cent off, so that each round of corrections
    shrinks the error to a few per cent, at any fairness.
    """
    rows, ridge = problem.sampled_users(SAMPLE)
    step = HalfStep(problem.backend, rows, V, eigenvalues, ridge, np.zeros_like(eigenvalues))
    return problem.backend.mean_inverse(step)[0]


def answer(response: Vector | Matrix, change: Vector) -> Vector:
    """Return `response` times `change`: what every user loses when q rises by it. A vector is a diagonal matrix."""
    result: Vector = response * change if response.ndim == 1 else response @ change
    return result


def corrected(
    backend: Backend,
    q: Vector,
    t: Vector,
    strength: Vector | Matrix,
    response: Vector | Matrix,
    rest: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Return the q that satisfies q = C t if t responds to it by `response`, and what every user gains by that.

    `strength` is C in the eigenbasis of alpha0 G_V. There C is diagonal, so a vector, unless items have fairness
    weights. In a basis that is nearly the eigenbasis, `rest` is the part off the diagonal, times t: q = C t is then
    approached rather than met.
    """
    if strength.ndim == 1 and response.ndim == 1:
        return backend.corrected_shift(q, t, strength, response, rest)
    # (I + C A) change = C t - q: Newton's step on q = C t(q), whose slope is -C A.
    missing = answer(strength, t) - q if rest is None else answer(strength, t) + rest - q
    left = strength[:, None] if strength.ndim == 1 else strength
    product = left * response if strength.ndim == 1 or response.ndim == 1 else left @ response
    change: Vector = np.linalg.solve(np.diag(np.ones_like(q)) + product, missing).astype(np.float64)
    return q + change, -answer(response, change)


def exact_coupling(
    problem: Problem,
    V: Factors,
    gramian: Matrix,
    merit_gramian: Matrix,
    fairness: float,
    own: Factors | None = None,
) -> Vector:
    """Solve (I + A C) t = mean of H_i^-1 b_i with A over all users, and return q = C t. O(nnz d^2 + n d^3)."""
    strength = problem.unobserved_weight * merit_gramian
    inverse, solution = problem.backend.mean_inverse(problem.user_half_step(V, gramian=gramian, own=own))
    t = np.linalg.solve(np.diag(np.ones_like(solution)) + inverse @ (fairness * strength), solution)
    return (fairness * strength @ t).astype(np.float64)
