/* Labels as packed text: front coding (engine/label_texts.py), and the index of rows (engine/seen_labels.py).

   Of a label, `coded` has: how many bytes it begins with as the one before does, at most 255, in one byte; how many bytes
   follow, in one byte, or if they are 255 or more, in four bytes after a byte of 255; and these bytes.  Every CHUNK-th
   label shares nothing, and `starts` says where it stands, so that a label is spelt from at most CHUNK others. */
#include "arrays.h"

#define CHUNK 16
#define MOST 255
#define MOST_BESIDE 6

/* text, ends, last; size, coded, used, starts: append labels to the `size` ones whose code takes `used` bytes; returns
   how many it takes then.  `last` is the text of the last label that is there. */
int64_t encode_labels(const Argument *a)
{
    const uint8_t *text = a[0].data, *before = a[2].data;
    const int64_t *ends = a[1].data;
    int64_t size = a[3].whole, used = a[5].whole, count = a[1].shape[0];
    int64_t begin = 0, before_length = a[2].shape[0], *starts = a[6].data;
    uint8_t *coded = a[4].data;
    FIT(size >= 0 && used >= 0 && (size + count + CHUNK - 1) / CHUNK <= a[6].shape[0]);
    FIT(a[4].shape[0] - used >= a[0].shape[0] + MOST_BESIDE * count);
    for (int64_t i = 0; i < count; i++) {
        FIT(begin <= ends[i] && ends[i] <= a[0].shape[0]);
        const uint8_t *own = text + begin;
        int64_t length = ends[i] - begin, shared = 0;
        begin = ends[i];
        if ((size + i) % CHUNK == 0)
            starts[(size + i) / CHUNK] = used;
        else {
            int64_t most = SMALLER(SMALLER(length, before_length), MOST);
            while (shared < most && own[shared] == before[shared])
                shared++;
        }
        int64_t rest = length - shared;
        coded[used++] = (uint8_t)shared;
        coded[used++] = (uint8_t)SMALLER(rest, MOST);
        if (rest >= MOST)
            for (int byte = 0; byte < 4; byte++)
                coded[used++] = rest >> 8 * byte & 0xFF;
        memcpy(coded + used, own + shared, rest);
        used += rest;
        before = own;
        before_length = length;
    }
    return used;
}

/* How many bytes a label shares and adds; moves `place` to where these stand. */
static inline int64_t header(const uint8_t *coded, int64_t *place, int64_t *shared)
{
    *shared = coded[*place];
    int64_t rest = coded[*place + 1];
    *place += 2;
    if (rest == MOST) {
        rest = 0;
        for (int byte = 0; byte < 4; byte++)
            rest |= (int64_t)coded[*place + byte] << 8 * byte;
        *place += 4;
    }
    return rest;
}

/* coded, used, size, count; starts: note where `count` labels after `size` others stand, whose code begins at `used`;
   returns how long the longest of them is, or -1 if the code is not one of so many labels. */
int64_t find_starts(const Argument *a)
{
    const uint8_t *coded = a[0].data;
    int64_t place = a[1].whole, size = a[2].whole, count = a[3].whole, *starts = a[4].data;
    int64_t end = a[0].shape[0], longest = 0, before = 0;
    FIT(place >= 0 && size >= 0 && count >= 0 && (size + count + CHUNK - 1) / CHUNK <= a[4].shape[0]);
    for (int64_t row = size; row < size + count; row++) {
        if (place + 2 > end || (coded[place + 1] == MOST && place + MOST_BESIDE > end))
            return -1;
        bool first = row % CHUNK == 0;
        if (first)
            starts[row / CHUNK] = place;
        int64_t shared, rest = header(coded, &place, &shared);
        place += rest;
        if (shared && (first || (row > size && shared > before)))
            return -1;
        before = shared + rest;
        longest = before > longest ? before : longest;
    }
    return place == end ? longest : -1;
}

/* coded, starts, rows; lengths */
int64_t measure_labels(const Argument *a)
{
    const uint8_t *coded = a[0].data;
    const int64_t *starts = a[1].data, *rows = a[2].data;
    int64_t *lengths = a[3].data;
    FIT(a[3].shape[0] == a[2].shape[0]);
    for (int64_t i = 0; i < a[2].shape[0]; i++) {
        FIT(rows[i] >= 0 && rows[i] / CHUNK < a[1].shape[0]);
        int64_t place = starts[rows[i] / CHUNK], shared = 0, rest = 0;
        for (int64_t j = rows[i] % CHUNK; j >= 0; j--) {
            rest = header(coded, &place, &shared);
            place += rest;
        }
        lengths[i] = shared + rest;
    }
    return 0;
}

/* coded, starts, rows; text, spelt: write the labels into `text`; `spelt` has room for the longest one of all */
int64_t spell_labels(const Argument *a)
{
    const uint8_t *coded = a[0].data;
    const int64_t *starts = a[1].data, *rows = a[2].data;
    uint8_t *text = a[3].data, *spelt = a[4].data;
    for (int64_t i = 0; i < a[2].shape[0]; i++) {
        FIT(rows[i] >= 0 && rows[i] / CHUNK < a[1].shape[0]);
        int64_t place = starts[rows[i] / CHUNK], length = 0;
        for (int64_t j = rows[i] % CHUNK; j >= 0; j--) {
            int64_t shared, rest = header(coded, &place, &shared);
            FIT(shared + rest <= a[4].shape[0]);
            memcpy(spelt + shared, coded + place, rest);
            place += rest;
            length = shared + rest;
        }
        FIT(text + length <= (uint8_t *)a[3].data + a[3].shape[0]);
        memcpy(text, spelt, length);
        text += length;
    }
    return 0;
}

/* coded, starts, first; lengths: of labels that follow one another from row `first` on */
int64_t measure_following(const Argument *a)
{
    const uint8_t *coded = a[0].data;
    const int64_t *starts = a[1].data;
    int64_t first = a[2].whole, *lengths = a[3].data;
    FIT(first >= 0 && first / CHUNK < a[1].shape[0]);
    int64_t place = starts[first / CHUNK];
    for (int64_t i = first / CHUNK * CHUNK; i < first + a[3].shape[0]; i++) {
        int64_t shared, rest = header(coded, &place, &shared);
        place += rest;
        if (i >= first)
            lengths[i - first] = shared + rest;
    }
    return 0;
}

/* coded, starts, first, count; text, spelt: as spell_labels, of labels that follow one another from row `first` on */
int64_t spell_following(const Argument *a)
{
    const uint8_t *coded = a[0].data;
    const int64_t *starts = a[1].data;
    int64_t first = a[2].whole;
    uint8_t *text = a[4].data, *spelt = a[5].data;
    FIT(first >= 0 && first / CHUNK < a[1].shape[0]);
    int64_t place = starts[first / CHUNK];
    for (int64_t i = first / CHUNK * CHUNK; i < first + a[3].whole; i++) {
        int64_t shared, rest = header(coded, &place, &shared);
        FIT(shared + rest <= a[5].shape[0]);
        memcpy(spelt + shared, coded + place, rest);
        place += rest;
        if (i >= first) {
            FIT(text + shared + rest <= (uint8_t *)a[4].data + a[4].shape[0]);
            memcpy(text, spelt, shared + rest);
            text += shared + rest;
        }
    }
    return 0;
}

/* slots, ids (labels, 2), first; alike: put the rows from `first` on into the first empty slots from their homes on.
   `alike` gets for each of them whether another row has the same identity already. */
int64_t place_rows(const Argument *a)
{
    int32_t *slots = a[0].data;
    const uint64_t *ids = a[1].data;
    int64_t first = a[2].whole, last = a[0].shape[0] - 1;
    bool *alike = a[3].data;
    FIT(last >= 0 && (last & (last + 1)) == 0 && first >= 0 && a[1].shape[1] == 2);
    FIT(first + a[3].shape[0] <= SMALLER(a[1].shape[0], last));
    for (int64_t i = 0; i < a[3].shape[0]; i++) {
        const uint64_t *own = ids + 2 * (first + i);
        int64_t slot = (int64_t)(own[1] & (uint64_t)last);
        for (; slots[slot] != -1; slot = (slot + 1) & last) {
            const uint64_t *other = ids + 2 * (int64_t)slots[slot];
            if (other[0] == own[0] && other[1] == own[1])
                alike[i] = true;
        }
        slots[slot] = (int32_t)(first + i);
    }
    return 0;
}
