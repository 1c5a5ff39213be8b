//! A list of sentences, which a file may give names so that a file that extends it can replace one of them.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};

/// Reads a list, or the values of a table in its order.
pub fn sentences<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    reader.deserialize_any(Sentences)
}

struct Sentences;

impl<'de> Visitor<'de> for Sentences {
    type Value = Vec<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a list of sentences, or a table of them by any names")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut sentences = Vec::new();
        while let Some(sentence) = list.next_element()? {
            sentences.push(sentence);
        }
        Ok(sentences)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Vec<String>, A::Error> {
        let mut sentences = Vec::new();
        while let Some((_, sentence)) = table.next_entry::<String, String>()? {
            sentences.push(sentence);
        }
        Ok(sentences)
    }
}

#[cfg(test)]
mod tests {
    use crate::model::Paper;

    #[test]
    fn sentences_come_in_the_order_of_the_file_with_names_and_without() {
        let read = |text: &str| toml::from_str::<Paper>(text).map(|paper| paper.differences);
        let named = "[differences]\nserver = \"Another server.\"\nclient = \"Another client.\"";
        assert_eq!(read(named), read("differences = [\"Another server.\", \"Another client.\"]"));
        assert_eq!(read(named).unwrap(), ["Another server.", "Another client."]);
        assert!(read("differences = 3").unwrap_err().to_string().contains("a list of sentences"));
    }
}
