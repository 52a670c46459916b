//! The `coli` program: everything is in the library.

fn main() -> std::process::ExitCode {
    coli::cli::run()
}
