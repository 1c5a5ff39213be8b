//! The provider inside real libcrypto, `openssl s_server` and nginx: vectors, the matrix of stages, refusals, processes and threads.

mod build;
mod vectors;
