// packing: document starts and positions of packed rows, and the packer.
//
// Training rows hold T tokens, documents have any length. Cutting a stream of documents every T tokens
// (dataset_window) wastes nothing, but it splits documents, and a token can then attend to the tail of another
// document. Packing avoids the first; `first`, the first key that a query sees (AttnShape.first), avoids the second.
// With both, and with positions that count from the document's start, a row gives the same results as each of its
// documents alone.
//
// Packing is bin packing. Best fit decreasing: pieces in order of falling length, each into the fullest row that still
// has room for it. At worst it makes 11/9 of the fewest possible rows plus 4 (Johnson et al., SIAM J. Comput. 3, 1974);
// with the many short documents of a corpus there is nearly always one that fits. Rows are kept by their free room,
// 0 to T: a list of rows for each room and a bit for each list that is not empty, so a search looks through T / 64
// words. Sorting is by counting. So the time is linear in the documents.
//
// The invariant: each token of each document is in exactly one piece, and its target is the token that follows it in
// its document, or end-of-text after the last one. A split loses no target, because a piece keeps its place in the
// document. So a row has T tokens and T targets, not T + 1 tokens of which the last is only predicted.
//
// The target end-of-text after the last token of a document is kept. It teaches the model to stop, and it is predicted
// from tokens of the document alone. (GPT-3, arXiv 2005.14165, appendix B, delimits documents in this way and masks
// nothing.) Only padding is not counted.
//
// Rejected: the segment tree of Ding et al. over free room (the bits are fast enough for T of 100,000), and next fit,
// which needs no window but sometimes wastes half a row.
#include "text/packing.h"

#include "base/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void packing_positions(const int32_t *token, size_t B, size_t T, int32_t eot, int32_t *pos, int32_t *first,
                       int32_t *target)
{
    for (size_t b = 0; b < B; b++)
        for (size_t t = 0, start = 0; t < T; t++) {
            size_t i = b * T + t;
            bool starts = eot >= 0 && token[i] == eot;
            if (starts) start = t;
            if (pos) pos[i] = (int32_t)(t - start);
            if (first) first[i] = (int32_t)start;
            if (target && starts && target[i] == eot) target[i] = -1;
        }
}

// ---- the packer

static void *room_for(size_t n, size_t size)
{
    void *ptr = calloc(n ? n : 1, size);
    if (!ptr) die("packing: no memory for %zu documents or rows", n);
    return ptr;
}

// The rows that are being filled, by the room they have left.
typedef struct {
    size_t T, n_rows;
    uint64_t *present;   // bit r: some row has room r
    size_t *head, *next; // lists of rows + 1 by room (T + 1), and by row; 0 ends a list
} Rooms;

static void rooms_put(Rooms *rooms, size_t row, size_t room)
{
    rooms->next[row] = rooms->head[room];
    rooms->head[room] = row + 1;
    rooms->present[room / 64] |= 1ull << room % 64;
}

// Takes out the row with the least room that is at least `length`, or a new row; *room: its room.
static size_t rooms_take(Rooms *rooms, size_t length, size_t *room)
{
    size_t word = length / 64, n_words = rooms->T / 64 + 1;
    uint64_t bits = rooms->present[word] & ~0ull << length % 64;
    while (!bits && ++word < n_words) bits = rooms->present[word];
    if (!bits) {
        *room = rooms->T;
        return rooms->n_rows++;
    }
    *room = word * 64 + (size_t)__builtin_ctzll(bits);
    size_t row = rooms->head[*room] - 1;
    rooms->head[*room] = rooms->next[row];
    if (!rooms->head[*room]) rooms->present[word] &= ~(1ull << *room % 64);
    return row;
}

// Pieces of documents [from, to), in order; returns how many. piece NULL: counts only.
static size_t cut(const size_t *length, size_t from, size_t to, size_t T, PackedPiece *piece)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++)
        for (size_t at = 0; at < length[i]; at += T, n++)
            if (piece) piece[n] = (PackedPiece){i, at, length[i] - at < T ? length[i] - at : T, 0, 0};
    return n;
}

// order = the pieces' indices by falling length, equal ones in order. count (T + 1) is scratch.
static void by_length(size_t *order, const PackedPiece *piece, size_t n, size_t *count, size_t T)
{
    memset(count, 0, (T + 1) * sizeof *count);
    for (size_t i = 0; i < n; i++) count[piece[i].length]++;
    for (size_t l = T, sum = 0; l > 0; l--) {
        size_t here = count[l];
        count[l] = sum;
        sum += here;
    }
    for (size_t i = 0; i < n; i++) order[count[piece[i].length]++] = i;
}

// Moves the pieces into the order of their rows; within a row they stand in the order in which they came.
static void by_row(Packing *p, const PackedPiece *piece, const size_t *order)
{
    p->row_begin = room_for(p->n_rows + 1, sizeof *p->row_begin);
    p->piece = room_for(p->n_pieces, sizeof *p->piece);
    size_t *at = room_for(p->n_rows + 1, sizeof *at);
    for (size_t i = 0; i < p->n_pieces; i++) p->row_begin[piece[i].row + 1]++;
    for (size_t r = 0; r < p->n_rows; r++) at[r + 1] = p->row_begin[r + 1] += p->row_begin[r];
    for (size_t i = 0; i < p->n_pieces; i++) p->piece[at[piece[order[i]].row]++] = piece[order[i]];
    free(at);
}

Packing packing_make(const size_t *length, size_t n, size_t T, size_t window)
{
    check(T > 0);
    Packing p = {.T = T, .n_pieces = cut(length, 0, n, T, NULL)};
    PackedPiece *piece = room_for(p.n_pieces, sizeof *piece);
    size_t *order = room_for(p.n_pieces, sizeof *order), *count = room_for(T + 1, sizeof *count), done = 0;
    Rooms rooms = {.T = T, .present = room_for(T / 64 + 1, sizeof *rooms.present),
                   .head = room_for(T + 1, sizeof *rooms.head), .next = room_for(p.n_pieces, sizeof *rooms.next)};
    if (!window) window = n;
    for (size_t from = 0; from < n; from += window) {
        size_t to = n - from < window ? n : from + window, m = cut(length, from, to, T, piece + done);
        by_length(order + done, piece + done, m, count, T);
        memset(rooms.present, 0, (T / 64 + 1) * sizeof *rooms.present);
        memset(rooms.head, 0, (T + 1) * sizeof *rooms.head);
        for (size_t i = done; i < done + m; i++) {
            PackedPiece *next = &piece[order[i] += done];
            size_t room;
            next->row = rooms_take(&rooms, next->length, &room);
            next->column = T - room;
            rooms_put(&rooms, next->row, room - next->length);
        }
        done += m;
    }
    for (size_t i = 0; i < n; i++) p.n_tokens += length[i], p.n_cut += length[i] > T;
    p.n_rows = rooms.n_rows;
    by_row(&p, piece, order);
    free(piece), free(order), free(count), free(rooms.present), free(rooms.head), free(rooms.next);
    return p;
}

void packing_free(Packing *p)
{
    free(p->piece);
    free(p->row_begin);
    *p = (Packing){0};
}

double packing_efficiency(const Packing *p)
{
    return p->n_rows ? (double)p->n_tokens / (double)(p->n_rows * p->T) : 1;
}
