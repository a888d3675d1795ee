// A call of the kernel: each argument is read from the place that its address names.
#pragma once
#include <stddef.h>

namespace on_cpu {

// A type without its outer const, which a parameter may have.
template <class T>
struct Plain {
    typedef T Type;
};
template <class T>
struct Plain<const T> {
    typedef T Type;
};

template <size_t... I>
struct Places {};

template <size_t N, size_t... I>
struct PlacesUpTo : PlacesUpTo<N - 1, N - 1, I...> {};

template <size_t... I>
struct PlacesUpTo<0, I...> {
    typedef Places<I...> Type;
};

template <class... P, size_t... I>
__attribute__((no_sanitize("thread"))) void call(void (*kernel)(P...), void** arguments, Places<I...>) {
    kernel(*(typename Plain<P>::Type*)arguments[I]...);
}

template <class... P>
void call(void (*kernel)(P...), void** arguments) {
    call(kernel, arguments, typename PlacesUpTo<sizeof...(P)>::Type());
}

}  // namespace on_cpu
