/* The loops of set union in which a user's choice depends on the users before.

   All three change `weights` (items) for the users in `order`, and treat one user alike whatever the rest of the
   histogram.  Weights of the first two are whole tokens.  Write a user's move as a list of tokens: for `fill_greedily`
   the user's first item until its gap to `cap` is closed, then the second, and so on; for `fill_evenly` one token to
   each item with a gap left, in item order, then another round.  The user spends the first `tokens` of the list.  One
   token more on an item takes one entry from the list and never moves another, so the two histograms differ by one
   token afterwards, or by none: users who come later never enlarge a difference (the l1 contraction). */
#include "arrays.h"

/* Whether `order` has users of `starts`, and these have items of `weights`. */
static bool belong(const Argument *order, const Argument *starts, const Argument *items, const Argument *weights)
{
    const int64_t *users = order->data, *begins = starts->data, *held = items->data;
    for (int64_t i = 0; i < order->shape[0]; i++)
        if (users[i] < 0 || users[i] + 1 >= starts->shape[0])
            return false;
    for (int64_t user = 0; user + 1 < starts->shape[0]; user++)
        if (begins[user] < 0 || begins[user] > begins[user + 1] || begins[user + 1] > items->shape[0])
            return false;
    for (int64_t i = 0; i < items->shape[0]; i++)
        if (held[i] < 0 || held[i] >= weights->shape[0])
            return false;
    return true;
}

/* order, starts, items, tokens, cap; weights: every user spends `tokens`, one item after the other in the order of the
   basket, each up to `cap` */
int64_t fill_greedily(const Argument *a)
{
    const int64_t *order = a[0].data, *starts = a[1].data, *items = a[2].data;
    int64_t tokens = a[3].whole, cap = a[4].whole, *weights = a[5].data;
    FIT(belong(a, a + 1, a + 2, a + 5));
    for (int64_t i = 0; i < a[0].shape[0]; i++) {
        int64_t left = tokens;
        for (int64_t at = starts[order[i]]; at < starts[order[i] + 1] && left > 0; at++) {
            int64_t given = SMALLER(left, cap - weights[items[at]]);
            if (given > 0) {
                weights[items[at]] += given;
                left -= given;
            }
        }
    }
    return 0;
}

/* order, starts, items, tokens, cap; weights: every user spends `tokens` evenly over the items below `cap`; those that
   reach it leave theirs to the rest */
int64_t fill_evenly(const Argument *a)
{
    const int64_t *order = a[0].data, *starts = a[1].data, *items = a[2].data;
    int64_t tokens = a[3].whole, cap = a[4].whole, *weights = a[5].data;
    FIT(belong(a, a + 1, a + 2, a + 5));
    for (int64_t i = 0; i < a[0].shape[0]; i++) {
        int64_t first = starts[order[i]], last = starts[order[i] + 1], missing = 0, open = 0;
        for (int64_t at = first; at < last; at++) {
            int64_t gap = cap - weights[items[at]];
            missing += gap;
            open += gap > 0;
        }
        if (missing <= tokens) {
            for (int64_t at = first; at < last; at++)
                weights[items[at]] = cap;
            continue;
        }
        int64_t level = tokens / open, left, above;
        for (;;) {
            left = tokens;
            above = 0;
            for (int64_t at = first; at < last; at++) {
                int64_t gap = cap - weights[items[at]];
                if (gap > level)
                    above++;
                else
                    left -= gap;
            }
            if (left / above == level)
                break;
            level = left / above;
        }
        int64_t spare = left - level * above;
        for (int64_t at = first; at < last; at++) {
            int64_t *weight = weights + items[at];
            if (cap - *weight <= level)
                *weight = cap;
            else
                *weight += level + (spare-- > 0);
        }
    }
    return 0;
}

/* order, starts, items, cap; weights: every user moves the weights of the basket towards `cap`, along the straight
   line, by at most 1 in l2 */
int64_t move_towards(const Argument *a)
{
    const int64_t *order = a[0].data, *starts = a[1].data, *items = a[2].data;
    double cap = a[3].real, *weights = a[4].data;
    FIT(belong(a, a + 1, a + 2, a + 4));
    for (int64_t i = 0; i < a[0].shape[0]; i++) {
        int64_t first = starts[order[i]], last = starts[order[i] + 1];
        double squares = 0.0;
        for (int64_t at = first; at < last; at++) {
            double gap = cap - weights[items[at]];
            squares += gap * gap;
        }
        double share = squares <= 1.0 ? 1.0 : 1.0 / sqrt(squares);
        for (int64_t at = first; at < last; at++) {
            double *weight = weights + items[at], moved = *weight + share * (cap - *weight);
            *weight = SMALLER(cap, moved);
        }
    }
    return 0;
}
