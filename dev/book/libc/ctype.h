// ctype.h: see stdlib.h.
#ifndef BOOK_CTYPE_H
#define BOOK_CTYPE_H
static inline int isdigit(int c) { return c >= '0' && c <= '9'; }
static inline int isspace(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
#endif
