/* Labels as packed text: front coding (engine/label_texts.py), the index of rows (engine/seen_labels.py), and hashes.

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

/* Keyed BLAKE2b (RFC 7693, sequential): what hashlib gives, without an object for each text. */
enum { BLOCK = 128, SALT_BYTES = 16, CHAINED = 4 };

static const uint64_t IV[8] = {
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
};
static const uint8_t SIGMA[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t turned(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

#define MIX(a, b, c, d, x, y)        \
    v[a] += v[b] + words[s[x]];      \
    v[d] = turned(v[d] ^ v[a], 32);  \
    v[c] += v[d];                    \
    v[b] = turned(v[b] ^ v[c], 24);  \
    v[a] += v[b] + words[s[y]];      \
    v[d] = turned(v[d] ^ v[a], 16);  \
    v[c] += v[d];                    \
    v[b] = turned(v[b] ^ v[c], 63)

/* Takes in a block that ends after `taken` bytes; `size` of its bytes are there, and the others are zeros. */
static void compress(uint64_t *state, const uint8_t *block, int64_t size, uint64_t taken, bool last)
{
    uint64_t v[16], words[16] = {0};
    memcpy(words, block, (size_t)size); /* little-endian; on other machines the golden draw is refused */
    for (int i = 0; i < 8; i++) {
        v[i] = state[i];
        v[i + 8] = IV[i];
    }
    v[12] ^= taken;
    if (last)
        v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = SIGMA[round];
        MIX(0, 4, 8, 12, 0, 1);
        MIX(1, 5, 9, 13, 2, 3);
        MIX(2, 6, 10, 14, 4, 5);
        MIX(3, 7, 11, 15, 6, 7);
        MIX(0, 5, 10, 15, 8, 9);
        MIX(1, 6, 11, 12, 10, 11);
        MIX(2, 7, 8, 13, 12, 13);
        MIX(3, 4, 9, 14, 14, 15);
    }
    for (int i = 0; i < 8; i++)
        state[i] ^= v[i] ^ v[i + 8];
}

/* The states after the block of a key: if more follows, and if nothing does. */
typedef struct {
    uint64_t after_key[8], alone[8];
} Keyed;

static Keyed keyed(const uint8_t *key, int64_t key_bytes, const uint8_t *salt, int64_t words)
{
    Keyed both;
    memcpy(both.after_key, IV, sizeof IV);
    both.after_key[0] ^= 0x01010000 ^ (uint64_t)key_bytes << 8 ^ (uint64_t)words * 8;
    for (int64_t j = 0; salt && j < SALT_BYTES; j++)
        both.after_key[4 + (j >> 3)] ^= (uint64_t)salt[j] << 8 * (j & 7);
    memcpy(both.alone, both.after_key, sizeof IV);
    compress(both.after_key, key, key_bytes, BLOCK, false);
    compress(both.alone, key, key_bytes, BLOCK, true);
    return both;
}

static void digest(const Keyed *both, const uint8_t *text, int64_t length, uint64_t *found, int64_t words)
{
    uint64_t state[8];
    memcpy(state, length ? both->after_key : both->alone, sizeof state);
    for (int64_t at = 0; at < length; at += BLOCK) {
        int64_t size = SMALLER(BLOCK, length - at);
        compress(state, text + at, size, (uint64_t)(BLOCK + at + size), at + size == length);
    }
    memcpy(found, state, (size_t)words * sizeof *state);
}

/* key, salt, text, ends; found (texts, words): the digest of each text, of one, two or four words.  The block of the key
   is the same for all of them. */
int64_t text_digests(const Argument *a)
{
    const uint8_t *text = a[2].data;
    const int64_t *ends = a[3].data;
    uint64_t *found = a[4].data;
    int64_t key_bytes = a[0].shape[0], texts = a[3].shape[0], words = a[4].shape[1], begin = 0;
    FIT(0 < key_bytes && key_bytes <= 64 && a[1].shape[0] == SALT_BYTES);
    FIT(a[4].shape[0] == texts && (words == 1 || words == 2 || words == CHAINED));
    Keyed both = keyed(a[0].data, key_bytes, a[1].data, words);
    for (int64_t i = 0; i < texts; i++) {
        FIT(begin <= ends[i] && ends[i] <= a[2].shape[0]);
        digest(&both, text + begin, ends[i] - begin, found + words * i, words);
        begin = ends[i];
    }
    return 0;
}

/* key, ends; text, found (texts, CHAINED): the digest of each text, which begins with the one before: there is room for
   it, and in the first text it stands already. */
int64_t chained_digests(const Argument *a)
{
    const int64_t *ends = a[1].data;
    uint8_t *text = a[2].data;
    uint64_t *found = a[3].data;
    int64_t key_bytes = a[0].shape[0], texts = a[1].shape[0], begin = 0;
    FIT(0 < key_bytes && key_bytes <= 64 && a[3].shape[0] == texts && a[3].shape[1] == CHAINED);
    Keyed both = keyed(a[0].data, key_bytes, NULL, CHAINED);
    for (int64_t i = 0; i < texts; i++) {
        FIT(ends[i] <= a[2].shape[0] && ends[i] - begin >= CHAINED * (int64_t)sizeof *found);
        if (i)
            memcpy(text + begin, found + CHAINED * (i - 1), CHAINED * sizeof *found);
        digest(&both, text + begin, ends[i] - begin, found + CHAINED * i, CHAINED);
        begin = ends[i];
    }
    return 0;
}
