//! Names that people type. One list for each type gives its values, their names, its parsing, its printing, its JSON
//! and what help texts say about it.

use std::str::FromStr;

#[cfg(feature = "serde")]
pub use serde;

/// A type whose every value has a name ([`named!`](crate::named) makes them).
pub trait Named: Copy + PartialEq + FromStr<Err = UnknownName> + Send + Sync + 'static {
    /// The name in files, in JSON and on the command line.
    fn name(self) -> &'static str;

    /// What it means, as help texts say it.
    fn about(self) -> String;
}

/// A name that no value of a type has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`; known are {known}")]
pub struct UnknownName {
    /// The kind of thing that was named, for example `TLS version`.
    pub what: &'static str,
    /// The unknown name.
    pub name: String,
    /// The names that would have been understood.
    pub known: String,
}

/// Declares an enum with the name of each value, and further names that are understood.
#[macro_export]
macro_rules! named {
    ($(#[$($meta:tt)*])* pub enum $type:ident: $what:literal {
        $($(#[$($attribute:tt)*])* $variant:ident = $name:literal $(| $alias:literal)*,)*
    }) => {
        $(#[$($meta)*])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$($attribute)*])* $variant,)* }

        impl $type {
            /// Every value, in the order of help texts and reports.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// The name in files, in JSON and on the command line.
            pub const fn name(self) -> &'static str {
                match self { $($type::$variant => $name,)* }
            }
        }

        impl $crate::names::Named for $type {
            fn name(self) -> &'static str {
                self.name()
            }

            fn about(self) -> String {
                let text: &[&str] = match self {
                    $($type::$variant => &[$($crate::text_of_attribute!($($attribute)*)),*],)*
                };
                text.concat().trim().trim_end_matches('.').to_owned()
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::names::UnknownName;

            fn from_str(name: &str) -> Result<$type, $crate::names::UnknownName> {
                $(if [$name $(, $alias)*].iter().any(|known| known.eq_ignore_ascii_case(name)) {
                    return Ok($type::$variant);
                })*
                let known = [$($name),*].join(", ");
                Err($crate::names::UnknownName { what: $what, name: name.to_owned(), known })
            }
        }

        $crate::serde_by_name!($type);
    };
}

/// The text of an attribute that is a line of documentation.
#[doc(hidden)]
#[macro_export]
macro_rules! text_of_attribute {
    (doc = $text:literal) => {
        $text
    };
    ($($other:tt)*) => {
        ""
    };
}

/// Reads and writes a type by its name.
#[doc(hidden)]
#[cfg(feature = "serde")]
#[macro_export]
macro_rules! serde_by_name {
    ($type:ty) => {
        impl $crate::names::serde::Serialize for $type {
            fn serialize<S: $crate::names::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> $crate::names::serde::Deserialize<'de> for $type {
            fn deserialize<D: $crate::names::serde::Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                let name = <String as $crate::names::serde::Deserialize>::deserialize(from)?;
                name.parse().map_err($crate::names::serde::de::Error::custom)
            }
        }
    };
}

/// Without the feature `serde` nothing is read or written.
#[doc(hidden)]
#[cfg(not(feature = "serde"))]
#[macro_export]
macro_rules! serde_by_name {
    ($type:ty) => {};
}
