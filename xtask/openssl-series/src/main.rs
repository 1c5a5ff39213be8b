//! Prints one line for each series: its name, the exact version, and the folder of its sources.
fn main() {
    println!("3.5 {} {}", openssl_src_3_5::version(), openssl_src_3_5::source_dir().display());
    println!("4.0 {} {}", openssl_src_4_0::version(), openssl_src_4_0::source_dir().display());
}
