//! Names of what is no stage, in records and results.

/// Name of the share that is left between the stages and plain HTTP: where slices measured it, what a hit costs with
/// all stages off, less plain HTTP.
pub const OTHER_TLS: &str = "other_tls";
pub const PLAIN_HTTP: &str = "plain_http";
/// Name of what the stages leave without a plain-HTTP configuration: other TLS and the server itself.
pub const REST: &str = "rest";

/// Name of what switching all stages off saves beyond the sum of what each saves alone, where the share that is left
/// was measured with all of them off. Below 0 the stages' costs overlap.
pub const TOGETHER: &str = "together";

/// Name of what named shares leave of 100 %: interactions, and shares that could not be measured. Below 0 they overlap.
pub const MISSING: &str = "missing_to_100";
