//! Two libraries under one server: each configuration is there once more on the second.

use std::path::PathBuf;

use super::ConfigurationModel;

/// The name of a configuration on the second library.
pub fn name_on_second(name: &str) -> String {
    format!("{name}, library B")
}

/// The configurations, and behind them each once more on the second library. Twice is as good as once. Plain HTTP needs
/// no library, and what names one itself has it.
pub(super) fn with_second(configurations: &[ConfigurationModel], second: Option<&PathBuf>) -> Vec<ConfigurationModel> {
    let on_second = |model: &ConfigurationModel| {
        let name = name_on_second(&model.name);
        let is_new = configurations.iter().all(|other| other.name != name);
        let repeat_of = model.repeat_of.as_deref().map(name_on_second);
        (is_new && model.library.is_none() && !model.plain_http).then(|| ConfigurationModel {
            name,
            repeat_of,
            library: second.cloned(),
            ..model.clone()
        })
    };
    let copies = configurations.iter().filter(|_| second.is_some()).filter_map(on_second);
    configurations.iter().cloned().chain(copies).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_there_once_more_and_only_once() {
        let second = PathBuf::from("/b");
        let bases = [ConfigurationModel::as_is(), ConfigurationModel::plain_http()];
        let all = with_second(&bases, Some(&second));
        assert_eq!(all.iter().map(|model| model.name.as_str()).collect::<Vec<_>>()[2..], ["as is, library B"]);
        assert_eq!(all[2].library.as_ref(), Some(&second));
        assert!(!all[2].is_untouched() && all[2].without_library().is_untouched());
        assert_eq!(with_second(&all, Some(&second)), all);
        assert_eq!(with_second(&bases, None), bases);
    }
}
