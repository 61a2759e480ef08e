// errno.h: see stdlib.h.
#ifndef BOOK_ERRNO_H
#define BOOK_ERRNO_H
extern int errno;
#endif
