/* Counts the calls of this process that change or read files below one folder, and makes one fail.

   Loaded by LD_PRELOAD. Nothing happens until `faults_arm`. The state lies in memory that forked
   processes share, so their steps count as well. Calls by other ways than libc (memory maps) are
   not seen.
*/
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* What is counted. */
enum { CHANGES = 1, READS = 2 };
/* What happens at the step. */
enum { COUNT = 0, KILL = 1, TORN = 2, FAIL = 3, FULL = 4, SIGNAL = 5 };
/* The operations of the log. */
enum { OPEN = 1, WRITE, SYNC, RENAME, LINK, UNLINK, RMDIR, MKDIR, TRUNCATE, OTHER };

struct state {
  int armed, what, action, value, log;
  long step, count, hits;
  char root[4096], last[4096];
};

static struct state *state;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
  state = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void faults_arm(const char *root, int what, int action, long step, int value, int log) {
  state->armed = 0;
  strncpy(state->root, root, sizeof(state->root) - 1);
  state->what = what, state->action = action, state->step = step, state->value = value;
  state->log = log, state->count = 0, state->hits = 0, state->last[0] = 0;
  state->armed = 1;
}

void faults_disarm(void) { state->armed = 0; }
long faults_count(void) { return state->count; }
long faults_hits(void) { return state->hits; }
/* The call at the step, and its path. */
const char *faults_last(void) { return state->last; }

#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

static int below(const char *path) {
  size_t n = strlen(state->root);
  return !strncmp(path, state->root, n) && (path[n] == 0 || path[n] == '/');
}

static int of_descriptor(int fd, char *out) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, out, 4095);
  if (n < 0) return 0;
  out[n] = 0;
  return 1;
}

/* The absolute path; 0 when it is not below the root. */
static int of_path(int dir, const char *path, char *out) {
  if (!path) return 0;
  if (path[0] == '/') {
    snprintf(out, 4096, "%s", path);
  } else {
    char base[4096];
    if (dir == AT_FDCWD ? !getcwd(base, sizeof base) : !of_descriptor(dir, base)) return 0;
    snprintf(out, 4096, "%.2047s/%.2047s", base, path);
  }
  return below(out);
}

/* Counts a step. 1: the call returns `errno`; 2: it does half of a write (then see `torn`). */
static int step(const char *call, const char *path, int kind, int allocates, int has_path) {
  if (!(state->what & kind)) return 0;
  /* A write or a sync of an open file is never refused for its permissions. */
  if (state->action == FAIL && state->value == EACCES && !has_path) return 0;
  long at = __atomic_fetch_add(&state->count, 1, __ATOMIC_SEQ_CST);
  if (state->action == FULL && at > state->step && state->step >= 0 && allocates) {
    errno = state->value;
    return 1;
  }
  if (at != state->step) return 0;
  state->hits++;
  snprintf(state->last, sizeof state->last, "%s %.4000s", call, path);
  switch (state->action) {
  case KILL:
    kill(getpid(), SIGKILL);
    for (;;) pause();
  case TORN:
    return 2;
  case FAIL:
    errno = state->value;
    return 1;
  case FULL:
    if (!strcmp(call, "write")) return 2;
    if (!allocates) return 0;
    errno = state->value;
    return 1;
  case SIGNAL:
    kill(getpid(), state->value);
    /* SIGSTOP takes the whole process: another one goes on meanwhile. */
  }
  return 0;
}

/* After the half of a write. */
static void torn(void) {
  if (state->action == TORN) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
}

static int logging(void) { return state->armed && state->log >= 0 && (state->what & CHANGES); }

static void put(int kind, const char *path, const char *to, int64_t offset, const struct iovec *data, int pieces,
                int64_t length) {
  char head[64];
  struct iovec all[3 + 1024];
  int n = snprintf(head, sizeof head, "%d %zu %zu %lld %lld\n", kind, strlen(path), strlen(to), (long long)offset,
                   (long long)length);
  all[0] = (struct iovec){head, n};
  all[1] = (struct iovec){(void *)path, strlen(path)};
  all[2] = (struct iovec){(void *)to, strlen(to)};
  int count = 3;
  int64_t left = kind == WRITE ? length : 0;
  for (int i = 0; i < pieces && left > 0; i++) {
    size_t some = data[i].iov_len < (size_t)left ? data[i].iov_len : (size_t)left;
    all[count++] = (struct iovec){data[i].iov_base, some};
    left -= some;
  }
  for (int i = 0; i < count; i++) {
    const char *from = all[i].iov_base;
    size_t some = all[i].iov_len;
    while (some) {
      ssize_t done = syscall(SYS_write, state->log, from, some);
      if (done <= 0) return;
      from += done, some -= done;
    }
  }
}

/* The body of a call that changes files and takes a path: count, do, log. */
#define CHANGE(name, dir, path, allocates, CALL, LOG) \
  char full[4096]; \
  if (!state->armed || !of_path(dir, path, full)) return CALL; \
  int found = step(name, full, CHANGES, allocates, 1); \
  if (found == 1) return -1; \
  if (found == 2) torn(); \
  if (!logging()) return CALL; \
  pthread_mutex_lock(&one); \
  __typeof__(CALL) result = CALL; \
  int saved = errno; \
  if (result >= 0) { LOG; } \
  pthread_mutex_unlock(&one); \
  errno = saved; \
  return result;

/* -- opening -------------------------------------------------------------------------------- */

static int opened(int (*call)(int, const char *, int, mode_t), int dir, const char *path, int flags, mode_t mode) {
  char full[4096];
  if (!state->armed || !of_path(dir, path, full)) return call(dir, path, flags, mode);
  if (!(flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))) {
    if (step("open", full, READS, 0, 1) == 1) return -1;
    return call(dir, path, flags, mode);
  }
  int found = step("open", full, CHANGES, flags & O_CREAT, 1);
  if (found == 1) return -1;
  if (found == 2) torn();
  if (!logging()) return call(dir, path, flags, mode);
  pthread_mutex_lock(&one);
  int there = syscall(SYS_faccessat, AT_FDCWD, full, F_OK) == 0;
  int result = call(dir, path, flags, mode);
  int saved = errno;
  if (result >= 0 && (!there || (flags & O_TRUNC))) put(OPEN, full, "", there, NULL, 0, 0);
  pthread_mutex_unlock(&one);
  errno = saved;
  return result;
}

static int open_now(int dir, const char *path, int flags, mode_t mode) {
  REAL(openat)
  return real(dir, path, flags, mode);
}

#define MODE \
  mode_t mode = 0; \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list more; \
    va_start(more, flags); \
    mode = va_arg(more, mode_t); \
    va_end(more); \
  }

int open(const char *path, int flags, ...) { MODE return opened(open_now, AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(open_now, AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int dir, const char *path, int flags, ...) { MODE return opened(open_now, dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { MODE return opened(open_now, dir, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return opened(open_now, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

DIR *opendir(const char *path) {
  REAL(opendir)
  char full[4096];
  if (state->armed && of_path(AT_FDCWD, path, full) && step("opendir", full, READS, 0, 1) == 1) return NULL;
  return real(path);
}

/* -- reading -------------------------------------------------------------------------------- */

static int read_fails(int fd) {
  char full[4096];
  if (!state->armed || !(state->what & READS) || !of_descriptor(fd, full) || !below(full)) return 0;
  return step("read", full, READS, 0, 0) == 1;
}

ssize_t read(int fd, void *data, size_t length) {
  REAL(read)
  return read_fails(fd) ? -1 : real(fd, data, length);
}
ssize_t pread(int fd, void *data, size_t length, off_t offset) {
  REAL(pread)
  return read_fails(fd) ? -1 : real(fd, data, length, offset);
}
ssize_t pread64(int fd, void *data, size_t length, off64_t offset) {
  REAL(pread64)
  return read_fails(fd) ? -1 : real(fd, data, length, offset);
}
ssize_t preadv(int fd, const struct iovec *pieces, int count, off_t offset) {
  REAL(preadv)
  return read_fails(fd) ? -1 : real(fd, pieces, count, offset);
}
ssize_t readv(int fd, const struct iovec *pieces, int count) {
  REAL(readv)
  return read_fails(fd) ? -1 : real(fd, pieces, count);
}

/* -- writing -------------------------------------------------------------------------------- */

/* All writes are one: `offset` is -1 where the file's position counts. */
static ssize_t written(int fd, const struct iovec *pieces, int count, off64_t offset) {
  char full[4096];
  struct iovec half[1024];
  int seen = state->armed && of_descriptor(fd, full) && below(full);
  if (seen) {
    int found = step("write", full, CHANGES, 1, 0);
    if (found == 1) return -1;
    if (found == 2) {
      size_t total = 0, left;
      for (int i = 0; i < count; i++) total += pieces[i].iov_len;
      left = total / 2;
      int kept = 0;
      for (; kept < count && kept < 1024 && left; kept++) {
        half[kept] = pieces[kept];
        if (half[kept].iov_len > left) half[kept].iov_len = left;
        left -= half[kept].iov_len;
      }
      if (total < 2) {
        torn();
        errno = state->value;
        return -1;
      }
      pieces = half, count = kept;
    }
    if (found == 2 && state->action == TORN) {
      offset < 0 ? syscall(SYS_writev, fd, pieces, count)
                 : syscall(SYS_pwritev, fd, pieces, count, offset, 0);
      torn();
    }
  }
  if (!seen || !logging())
    return offset < 0 ? syscall(SYS_writev, fd, pieces, count) : syscall(SYS_pwritev, fd, pieces, count, offset, 0);
  pthread_mutex_lock(&one);
  int64_t at = offset < 0 ? lseek64(fd, 0, SEEK_CUR) : offset;
  ssize_t result =
      offset < 0 ? syscall(SYS_writev, fd, pieces, count) : syscall(SYS_pwritev, fd, pieces, count, offset, 0);
  int saved = errno;
  if (result > 0) put(WRITE, full, "", at, pieces, count, result);
  pthread_mutex_unlock(&one);
  errno = saved;
  return result;
}

#define PIECE struct iovec piece = {(void *)data, length};
ssize_t write(int fd, const void *data, size_t length) { PIECE return written(fd, &piece, 1, -1); }
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { PIECE return written(fd, &piece, 1, offset); }
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) { PIECE return written(fd, &piece, 1, offset); }
ssize_t writev(int fd, const struct iovec *pieces, int count) { return written(fd, pieces, count, -1); }
ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) { return written(fd, pieces, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset) { return written(fd, pieces, count, offset); }

/* Callers read and write instead where these are refused. */
ssize_t copy_file_range(int in, off64_t *a, int out, off64_t *b, size_t n, unsigned flags) {
  REAL(copy_file_range)
  char full[4096];
  if (!state->armed || !of_descriptor(out, full) || !below(full)) return real(in, a, out, b, n, flags);
  errno = EOPNOTSUPP;
  return -1;
}
ssize_t sendfile(int out, int in, off_t *offset, size_t n) {
  REAL(sendfile)
  char full[4096];
  if (!state->armed || !of_descriptor(out, full) || !below(full)) return real(out, in, offset, n);
  errno = EINVAL;
  return -1;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t n) { return sendfile(out, in, offset, n); }

/* -- what is done to an open file ------------------------------------------------------------ */

#define ON_FILE(name, kind, allocates, CALL, length) \
  char full[4096]; \
  if (!state->armed || !of_descriptor(fd, full) || !below(full)) return CALL; \
  int found = step(name, full, CHANGES, allocates, 0); \
  if (found == 1) return -1; \
  if (found == 2) torn(); \
  if (!logging()) return CALL; \
  pthread_mutex_lock(&one); \
  int result = CALL, saved = errno; \
  if (result >= 0) put(kind, full, "", 0, NULL, 0, length); \
  pthread_mutex_unlock(&one); \
  errno = saved; \
  return result;

/* Nothing is really synced below the root: it is a process that dies here, not the machine. */
int fsync(int fd) { ON_FILE("fsync", SYNC, 1, 0, 0) }
int fdatasync(int fd) { ON_FILE("fdatasync", SYNC, 1, 0, 0) }
int ftruncate(int fd, off_t length) { ON_FILE("ftruncate", TRUNCATE, 1, (int)syscall(SYS_ftruncate, fd, length), length) }
int ftruncate64(int fd, off64_t length) { ON_FILE("ftruncate", TRUNCATE, 1, (int)syscall(SYS_ftruncate, fd, length), length) }
int fchmod(int fd, mode_t mode) { ON_FILE("fchmod", OTHER, 0, (int)syscall(SYS_fchmod, fd, mode), 0) }
int fchown(int fd, uid_t user, gid_t group) { ON_FILE("fchown", OTHER, 0, (int)syscall(SYS_fchown, fd, user, group), 0) }

/* -- names ---------------------------------------------------------------------------------- */

int renameat2(int dir, const char *path, int to_dir, const char *to, unsigned flags) {
  char target[4096];
  if (!of_path(to_dir, to, target)) snprintf(target, sizeof target, "%s", to);
  CHANGE("rename", dir, path, 1, (int)syscall(SYS_renameat2, dir, path, to_dir, to, flags),
         put(RENAME, full, target, 0, NULL, 0, 0))
}
int rename(const char *path, const char *to) { return renameat2(AT_FDCWD, path, AT_FDCWD, to, 0); }
int renameat(int dir, const char *path, int to_dir, const char *to) { return renameat2(dir, path, to_dir, to, 0); }

int linkat(int dir, const char *path, int to_dir, const char *to, int flags) {
  char target[4096];
  if (!of_path(to_dir, to, target)) snprintf(target, sizeof target, "%s", to);
  CHANGE("link", dir, path, 1, (int)syscall(SYS_linkat, dir, path, to_dir, to, flags),
         put(LINK, full, target, 0, NULL, 0, 0))
}
int link(const char *path, const char *to) { return linkat(AT_FDCWD, path, AT_FDCWD, to, 0); }

int unlinkat(int dir, const char *path, int flags) {
  CHANGE(flags & AT_REMOVEDIR ? "rmdir" : "unlink", dir, path, 0, (int)syscall(SYS_unlinkat, dir, path, flags),
         put(flags & AT_REMOVEDIR ? RMDIR : UNLINK, full, "", 0, NULL, 0, 0))
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char *path) {
  int done = unlink(path);
  return done < 0 && errno == EISDIR ? rmdir(path) : done;
}

int mkdirat(int dir, const char *path, mode_t mode) {
  CHANGE("mkdir", dir, path, 1, (int)syscall(SYS_mkdirat, dir, path, mode), put(MKDIR, full, "", 0, NULL, 0, 0))
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int truncate(const char *path, off_t length) {
  CHANGE("truncate", AT_FDCWD, path, 1, (int)syscall(SYS_truncate, path, length),
         put(TRUNCATE, full, "", 0, NULL, 0, length))
}
int truncate64(const char *path, off64_t length) { return truncate(path, length); }
