// nfc: Unicode's normalization form C: é as one character, whether it was written as one or as e and an accent.
#ifndef NFC_H
#define NFC_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Nfc Nfc; // what is known of every character; several threads may read it

// Where a text is written that changes; from {0}, one a thread.
typedef struct {
    char *bytes;
    int32_t *point; // the characters of a part that changes
    uint64_t *mark;
    size_t cap_bytes, cap_points, cap_marks;
} NfcRoom;

Nfc *nfc_new(void);
void nfc_free(Nfc *nfc); // NULL is allowed
// The text (*n bytes) in form C, and its bytes in *n: text itself, or in `room` until the next call. Bytes that are not
// UTF-8 stay.
const char *nfc_normalize(const Nfc *nfc, NfcRoom *room, const char *text, size_t *n);
void nfc_free_room(NfcRoom *room);

#ifdef __cplusplus
}
#endif
#endif
