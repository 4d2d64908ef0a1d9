/* Sleeps by the clock that the machine has, for processes that load libfaketime after this.
 *
 * libfaketime 0.9.10 answers an absolute sleep by the monotonic clock, which is what Python's
 * time.sleep is, with EINVAL where that clock is not to be changed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, until, left) ? errno : 0;
}
