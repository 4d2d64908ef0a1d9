/* Reports each change of a file below a folder, before it is made, and waits for an answer.

   Preloaded into a program and all that it starts. FILE_EVENTS_BELOW is the folder, and
   FILE_EVENTS_SOCKET the socket of whoever listens (file_events.py). A message has the operation and
   its paths, separated by zero bytes. "open" makes a file where there is none; "create" empties it
   where there is one. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void resolve(int folder, const char *path, char *out) {
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return;
    }
    char link[64], home[PATH_MAX / 2] = "";
    if (folder == AT_FDCWD) {
        if (getcwd(home, sizeof home) == NULL) home[0] = 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, home, sizeof home - 1);
        home[length > 0 ? length : 0] = 0;
    }
    if (path[0] == 0)
        snprintf(out, PATH_MAX, "%s", home);
    else
        snprintf(out, PATH_MAX, "%s/%s", home, path);
}

static void report(const char *what, int folder, const char *path, int other_folder,
                   const char *other) {
    const char *below = getenv("FILE_EVENTS_BELOW"), *name = getenv("FILE_EVENTS_SOCKET");
    if (below == NULL || name == NULL || path == NULL) return;
    char first[PATH_MAX], second[PATH_MAX] = "";
    int saved = errno;
    resolve(folder, path, first);
    if (other != NULL) resolve(other_folder, other, second);
    if (strncmp(first, below, strlen(below)) != 0 && strncmp(second, below, strlen(below)) != 0)
        return;
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0) {
        char message[2 * PATH_MAX + 64];
        int length = snprintf(message, sizeof message, "%s%c%s%c%s%c%c", what, 0, first, 0, second, 0, 0);
        char answer;
        if (send(connection, message, length, MSG_NOSIGNAL) == length)
            while (recv(connection, &answer, 1, 0) < 0 && errno == EINTR) continue;
    }
    close(connection);
    errno = saved;
}

static void report_open(int folder, const char *path, int flags) {
    if (flags & O_TRUNC)
        report("create", folder, path, 0, NULL);
    else if (flags & O_CREAT)
        report("open", folder, path, 0, NULL);
}

#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list rest;                                                                              \
        va_start(rest, flags);                                                                     \
        mode = va_arg(rest, mode_t);                                                               \
        va_end(rest);                                                                              \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    report_open(AT_FDCWD, path, flags);
    return REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    report_open(AT_FDCWD, path, flags);
    return REAL(open64)(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    report_open(folder, path, flags);
    return REAL(openat)(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    report_open(folder, path, flags);
    return REAL(openat64)(folder, path, flags, mode);
}

int creat(const char *path, mode_t mode) {
    report("create", AT_FDCWD, path, 0, NULL);
    return REAL(creat)(path, mode);
}

int creat64(const char *path, mode_t mode) {
    report("create", AT_FDCWD, path, 0, NULL);
    return REAL(creat64)(path, mode);
}

int truncate(const char *path, off_t length) {
    report("truncate", AT_FDCWD, path, 0, NULL);
    return REAL(truncate)(path, length);
}

int truncate64(const char *path, off64_t length) {
    report("truncate", AT_FDCWD, path, 0, NULL);
    return REAL(truncate64)(path, length);
}

int ftruncate(int file, off_t length) {
    report("truncate", file, "", 0, NULL);
    return REAL(ftruncate)(file, length);
}

int ftruncate64(int file, off64_t length) {
    report("truncate", file, "", 0, NULL);
    return REAL(ftruncate64)(file, length);
}

ssize_t write(int file, const void *data, size_t size) {
    report("write", file, "", 0, NULL);
    return REAL(write)(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    report("write", file, "", 0, NULL);
    return REAL(writev)(file, parts, count);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place) {
    report("write", file, "", 0, NULL);
    return REAL(pwrite)(file, data, size, place);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) {
    report("write", file, "", 0, NULL);
    return REAL(pwrite64)(file, data, size, place);
}

int rename(const char *from, const char *to) {
    report("rename", AT_FDCWD, from, AT_FDCWD, to);
    return REAL(rename)(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    report("rename", from_folder, from, to_folder, to);
    return REAL(renameat)(from_folder, from, to_folder, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to,
              unsigned int flags) {
    report("rename", from_folder, from, to_folder, to);
    return REAL(renameat2)(from_folder, from, to_folder, to, flags);
}

int link(const char *from, const char *to) {
    report("link", AT_FDCWD, from, AT_FDCWD, to);
    return REAL(link)(from, to);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    report("link", from_folder, from, to_folder, to);
    return REAL(linkat)(from_folder, from, to_folder, to, flags);
}

int unlink(const char *path) {
    report("unlink", AT_FDCWD, path, 0, NULL);
    return REAL(unlink)(path);
}

int unlinkat(int folder, const char *path, int flags) {
    report("unlink", folder, path, 0, NULL);
    return REAL(unlinkat)(folder, path, flags);
}

int remove(const char *path) {
    report("unlink", AT_FDCWD, path, 0, NULL);
    return REAL(remove)(path);
}

int rmdir(const char *path) {
    report("unlink", AT_FDCWD, path, 0, NULL);
    return REAL(rmdir)(path);
}

int mkdir(const char *path, mode_t mode) {
    report("mkdir", AT_FDCWD, path, 0, NULL);
    return REAL(mkdir)(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode) {
    report("mkdir", folder, path, 0, NULL);
    return REAL(mkdirat)(folder, path, mode);
}

int fsync(int file) {
    report("sync", file, "", 0, NULL);
    return REAL(fsync)(file);
}

int fdatasync(int file) {
    report("sync", file, "", 0, NULL);
    return REAL(fdatasync)(file);
}
