"""Reserved words: those with another meaning in emitted code, which no tensor, dimension or kernel
may have as its name.

``C_FUNCTIONS`` are the functions that the headers of CUDA 13 and of the GNU C library declare: a
kernel is a function too, without a namespace. They were collected by compiling a kernel of each
name that the headers mention, with nvcc and with g++.
"""

from __future__ import annotations

import keyword
import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PYTHON = frozenset((*keyword.kwlist, *keyword.softkwlist)) | _words(
    """
    TensorDescriptor bool cuda float int launch len libdevice list math max min pid print range
    self sum tl torch triton tuple
    """
)
C = _words(
    """
    alignas alignof and and_eq asm atomic auto bitand bitor bool break case catch char char16_t
    char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval
    constexpr constinit continue decltype default delete do double dynamic_cast else enum
    explicit export extern false final float for friend goto if import inline int long module
    mutable namespace new noexcept not not_eq nullptr operator or or_eq override private
    protected public register reinterpret_cast requires restrict return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename typeof union unsigned using virtual void volatile wchar_t while xor
    xor_eq alloca assert errno linux offsetof stderr stdin stdout unix blockDim blockIdx gridDim
    threadIdx warpSize main on_cpu on_cpu_call std ahead block i j k lane panel piece r row
    shared_memory stage to warp max min abs
    """
)
# Constants of headers, which are capitals alone or of some families, and types with a number.
C_FORMS = re.compile(
    r"[A-Z][A-Z0-9_]+[A-Z0-9]|(?:FP|L|M|NV|ON_CPU|P|SYS)_\w+|(?:si|wgmma)_\w+"
    r"|(?:dim|double|float|half|u?(?:char|int|long|longlong|short))\d+|u?int\d+_t|TensorMap"
)
C_FUNCTION_FORMS = re.compile(r"cuda\w*|\w+_(?:l|np|r|t|unlocked)")
C_FUNCTIONS = _words(
    """
    a64l abort abs access acct acos acosh alarm arc4random asctime asin asinh asprintf atan
    atan2 atanh atexit atof atoi atol bcmp bcopy brk bsearch btowc bzero calloc canonicalize
    cbrt ceil chdir chown chroot clearenv clearerr clock clock64 close closefrom confstr
    copysign cos cosh cospi crypt ctermid ctime cuserid daddl daemon ddivl dfmal difftime dim3
    div dmull dprintf drand48 drem dsqrtl dsubl dup dup2 dup3 duplocale dysize eaccess ecvt
    endusershell erand48 erf erfc erfcinv erfcx erfinv euidaccess execl execle execlp execv
    execve execveat execvp execvpe exit exp exp10 exp2 expm1 fabs faccessat fadd fchdir fchown
    fchownat fclose fcloseall fcvt fdatasync fdim fdiv fdivide fdopen feof ferror fexecve fflush
    ffma ffs fgetc fgetpos fgets fgetwc fgetws fileno finite flockfile floor fma fmax fmaximum
    fmaxmag fmemopen fmin fminimum fminmag fmod fmul fopen fopencookie fork fpathconf fprintf
    fputc fputs fputwc fputws fread free freelocale freopen frexp fromfp fromfpx fscanf fseek
    fseeko fsetpos fsqrt fsub fsync ftell ftello ftruncate ftrylockfile funlockfile fwide
    fwprintf fwrite fwscanf gamma gcvt getc getchar getcontext getcwd getdate getdelim
    getdomainname getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostid
    gethostname getline getloadavg getlogin getopt getpagesize getpass getpayload getpgid
    getpgrp getpid getppid getpt getresgid getresuid getsid getsubopt gettid getuid getusershell
    getw getwc getwchar getwd gmtime grantpt gsignal hypot ilogb initstate isalnum isalpha
    isatty isblank iscntrl isctype isdigit isgraph isinff isinfl islower isnanf isnanl isprint
    ispunct isspace isupper isxdigit j0 j1 jn jrand48 kill killpg l64a labs lchown lcong48 ldexp
    ldiv lgamma link linkat llabs lldiv llmax llmin llogb llrint llround localeconv localtime
    lock log log10 log1p log2 logb lrand48 lrint lround lseek madvise makecontext malloc max
    mblen mbrlen mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc memccpy memcmp memcpy
    memfrob memmem memmove mempcpy memset min mincore mkdtemp mkostemp mkostemps mkstemp
    mkstemps mktemp mktime mlock mlock2 mlockall mmap modf mprotect mrand48 mremap msync munlock
    munlockall munmap nan nanosleep nearbyint newlocale nextafter nextdown nexttoward nextup
    nice norm norm3d norm4d normcdf normcdfinv nrand48 pathconf pause pclose perror pipe pipe2
    popen pow pread printf profil pselect psiginfo psignal ptsname putc putchar putenv puts putw
    putwc putwchar pwrite qecvt qfcvt qgcvt qsort raise rand random rcbrt read readlink
    readlinkat realloc reallocarray realpath remainder remove remquo rename renameat renameat2
    revoke rewind rhypot rint rmdir rnorm rnorm3d rnorm4d round roundeven rpmatch rsqrt sbrk
    scalb scalbln scalbn scanf seed48 select setbuf setbuffer setcontext setdomainname setegid
    setenv seteuid setgid sethostid sethostname setlinebuf setlocale setlogin setpayload
    setpayloadsig setpgid setpgrp setregid setresgid setresuid setreuid setsid setstate setuid
    setusershell setvbuf sigaction sigaddset sigaltstack sigandset sigblock sigdelset
    sigemptyset sigfillset siggetmask sighold sigignore siginterrupt sigisemptyset sigismember
    signal significand sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn
    sigset sigsetmask sigstack sigsuspend sigtimedwait sigwait sigwaitinfo sin sincos sincospi
    sinh sinpi sleep snprintf sprintf sqrt srand srand48 srandom sscanf ssignal stpcpy stpncpy
    strcasecmp strcat strcmp strcoll strcpy strcspn strdup strerror strfrom strfromd strfry
    strftime strlen strncasecmp strncat strncmp strncpy strndup strnlen strptime strsep
    strsignal strspn strto strtod strtok strtold strtoq strtoul strtouq strverscmp strxfrm swab
    swapcontext swprintf swscanf symlink symlinkat sync syncfs syscall sysconf system tan tanh
    tcgetpgrp tcsetpgrp tempnam tgamma tgkill time timegm timelocal tmpfile tmpnam tolower
    totalorder totalordermag toupper trunc truncate ttyname ttyslot tzset ualarm ufromfp
    ufromfpx uint3 ullmax ullmin umax umin ungetc ungetwc unlink unlinkat unlockpt unsetenv
    uselocale usleep valloc vasprintf vdprintf vfork vfprintf vfscanf vfwprintf vfwscanf vhangup
    volatile vprintf vscanf vsnprintf vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf
    wcpcpy wcpncpy wcrtomb wcscasecmp wcscat wcschrnul wcscmp wcscoll wcscpy wcscspn wcsdup
    wcsftime wcslen wcsncasecmp wcsncat wcsncmp wcsncpy wcsnlen wcsnrtombs wcsrtombs wcsspn
    wcsto wcstod wcstok wcstold wcstombs wcstoq wcstoul wcstouq wcswidth wcsxfrm wctob wctomb
    wcwidth wmemcmp wmemcpy wmemmove wmempcpy wmemset wprintf write wscanf y0 y1 yn
    """
)
