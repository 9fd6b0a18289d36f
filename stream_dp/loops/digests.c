/* Keyed BLAKE2b (RFC 7693, sequential): what hashlib gives, without an object for each text, and several texts side by
   side. */
#include "arrays.h"

enum { BLOCK = 128, WORDS = BLOCK / 8, SALT_BYTES = 16, CHAINED = 4, LANES = 8 };

/* One word of each of several texts. */
typedef uint64_t Lanes __attribute__((vector_size(LANES * sizeof(uint64_t))));

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

#define TURNED(word, bits) ((word) >> (bits) | (word) << (64 - (bits)))

#define MIX(a, b, c, d, x, y)        \
    v[a] += v[b] + words[s[x]];      \
    v[d] = TURNED(v[d] ^ v[a], 32);  \
    v[c] += v[d];                    \
    v[b] = TURNED(v[b] ^ v[c], 24);  \
    v[a] += v[b] + words[s[y]];      \
    v[d] = TURNED(v[d] ^ v[a], 16);  \
    v[c] += v[d];                    \
    v[b] = TURNED(v[b] ^ v[c], 63)

/* Takes in a block, whose words these are, that ends after `taken` bytes: of one text, or with Lanes of several. */
#define COMPRESS(name, Word)                                                                           \
    name(Word *state, const Word *words, const Word *taken, bool last)                                 \
    {                                                                                                  \
        Word v[16] = {state[0], state[1], state[2], state[3], state[4], state[5], state[6], state[7]}; \
        for (int i = 0; i < 8; i++)                                                                    \
            v[i + 8] += IV[i];                                                                         \
        v[12] ^= *taken;                                                                               \
        if (last)                                                                                      \
            v[14] = ~v[14];                                                                            \
        for (int round = 0; round < 12; round++) {                                                     \
            const uint8_t *s = SIGMA[round];                                                           \
            MIX(0, 4, 8, 12, 0, 1);                                                                    \
            MIX(1, 5, 9, 13, 2, 3);                                                                    \
            MIX(2, 6, 10, 14, 4, 5);                                                                   \
            MIX(3, 7, 11, 15, 6, 7);                                                                   \
            MIX(0, 5, 10, 15, 8, 9);                                                                   \
            MIX(1, 6, 11, 12, 10, 11);                                                                 \
            MIX(2, 7, 8, 13, 12, 13);                                                                  \
            MIX(3, 4, 9, 14, 14, 15);                                                                  \
        }                                                                                              \
        for (int i = 0; i < 8; i++)                                                                    \
            state[i] ^= v[i] ^ v[i + 8];                                                               \
    }
COMPRESS(static void compress, uint64_t)
COMPRESS(INLINED void compress_lanes, Lanes)

/* The words of a block of which `size` bytes are there; the others are zeros. */
static inline void read_block(const uint8_t *block, int64_t size, uint64_t *words)
{
    memset(words, 0, BLOCK);
    memcpy(words, block, (size_t)size); /* little-endian; on other machines the golden draw is refused */
}

/* The states after the block of a key: if more follows, and if nothing does. */
typedef struct {
    uint64_t after_key[8], alone[8];
} Keyed;

static Keyed keyed(const uint8_t *key, int64_t key_bytes, const uint8_t *salt, int64_t digest_words)
{
    Keyed both;
    uint64_t words[WORDS], taken = BLOCK;
    memcpy(both.after_key, IV, sizeof IV);
    both.after_key[0] ^= 0x01010000 ^ (uint64_t)key_bytes << 8 ^ (uint64_t)digest_words * 8;
    for (int64_t j = 0; salt && j < SALT_BYTES; j++)
        both.after_key[4 + (j >> 3)] ^= (uint64_t)salt[j] << 8 * (j & 7);
    memcpy(both.alone, both.after_key, sizeof IV);
    read_block(key, key_bytes, words);
    compress(both.after_key, words, &taken, false);
    compress(both.alone, words, &taken, true);
    return both;
}

static void digest(const Keyed *both, const uint8_t *text, int64_t length, uint64_t *found, int64_t digest_words)
{
    uint64_t state[8], words[WORDS], taken;
    memcpy(state, length ? both->after_key : both->alone, sizeof state);
    for (int64_t at = 0; at < length; at += BLOCK) {
        int64_t size = SMALLER(BLOCK, length - at);
        read_block(text + at, size, words);
        taken = (uint64_t)(BLOCK + at + size);
        compress(state, words, &taken, at + size == length);
    }
    memcpy(found, state, (size_t)digest_words * sizeof *state);
}

/* How many blocks each of the next texts has, if all have as many; otherwise 0. */
static int64_t blocks_of_each(const int64_t *ends, int64_t begin)
{
    int64_t blocks = (ends[0] - begin + BLOCK - 1) / BLOCK;
    for (int i = 1; i < LANES; i++)
        if ((ends[i] - ends[i - 1] + BLOCK - 1) / BLOCK != blocks)
            return 0;
    return blocks;
}

/* The digests of the next texts, which have so many blocks each. */
INLINED void digest_lanes(
    const Keyed *both, const uint8_t *text, const int64_t *ends, int64_t begin, int64_t blocks, uint64_t *found,
    int64_t digest_words)
{
    Lanes state[8], words[WORDS], taken;
    uint64_t own[WORDS];
    for (int k = 0; k < 8; k++)
        state[k] = (Lanes){0} + both->after_key[k];
    for (int64_t block = 0; block < blocks; block++) {
        for (int i = 0; i < LANES; i++) {
            int64_t at = (i ? ends[i - 1] : begin) + block * BLOCK, size = SMALLER(BLOCK, ends[i] - at);
            read_block(text + at, size, own);
            taken[i] = (uint64_t)((1 + block) * BLOCK + size);
            for (int k = 0; k < WORDS; k++)
                words[k][i] = own[k];
        }
        compress_lanes(state, words, &taken, block == blocks - 1);
    }
    for (int i = 0; i < LANES; i++)
        for (int64_t k = 0; k < digest_words; k++)
            found[i * digest_words + k] = state[k][i];
}

/* key, salt, text, ends; found (texts, words): the digest of each text, of one, two or four words.  The block of the key
   is the same for all of them. */
BODY text_digests_body(const Argument *a)
{
    const uint8_t *text = a[2].data;
    const int64_t *ends = a[3].data;
    uint64_t *found = a[4].data;
    int64_t key_bytes = a[0].shape[0], texts = a[3].shape[0], words = a[4].shape[1], begin = 0;
    FIT(0 < key_bytes && key_bytes <= 64 && a[1].shape[0] == SALT_BYTES);
    FIT(a[4].shape[0] == texts && (words == 1 || words == 2 || words == CHAINED));
    for (int64_t i = 0; i < texts; begin = ends[i++])
        FIT(begin <= ends[i] && ends[i] <= a[2].shape[0]);
    Keyed both = keyed(a[0].data, key_bytes, a[1].data, words);
    begin = 0;
    for (int64_t i = 0; i < texts; begin = ends[i - 1]) {
        int64_t blocks = i + LANES <= texts ? blocks_of_each(ends + i, begin) : 0;
        if (blocks) {
            digest_lanes(&both, text, ends + i, begin, blocks, found + words * i, words);
            i += LANES;
        } else {
            digest(&both, text + begin, ends[i] - begin, found + words * i, words);
            i++;
        }
    }
    return 0;
}
VECTORED(text_digests)

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
