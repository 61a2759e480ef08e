// lock: one run at a time in a directory.
#ifndef LOCK_H
#define LOCK_H
#ifdef __cplusplus
extern "C" {
#endif

// Takes DIR/lock, which exists (DIR does too) from then on and says who has it: host, process, start. A handle for
// lock_release. Dies at once when another process has it, naming that one. The kernel gives the lock of a process that
// ended back, whatever ended it, so a lock that was left is taken over.
int lock_take(const char *dir);
// Empties the file and gives the lock back. -1 is allowed.
void lock_release(int lock);

#ifdef __cplusplus
}
#endif
#endif
