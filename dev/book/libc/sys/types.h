// sys/types.h: see stdlib.h.
#ifndef BOOK_SYS_TYPES_H
#define BOOK_SYS_TYPES_H
typedef long ssize_t;
typedef long long off_t;
#endif
