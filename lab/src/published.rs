//! Figures published by others, as data: `published.toml` of an experiment.
//!
//! ```toml
//! source = "the work, and where it can be found"
//! [[table]]
//! id = "batch-size"
//! title = "time for 5,000 requests, by batch size"
//! at = "section 6.1.1"
//! unit = "ms"
//! columns = ["batch size", "time"]
//! rows = [[64, 952], [128, 1416]]
//! ```
//! Knows nothing of: our own figures.

use serde::Deserialize;

/// All figures of one experiment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they stand.
    #[serde(default)]
    pub source: String,
    /// A remark about how they came to be.
    #[serde(default)]
    pub remark: String,
    /// The figures.
    #[serde(default, rename = "table")]
    pub tables: Vec<Table>,
}

/// One table of numbers: the first column is that by which the others are looked up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its name in code.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// Where in the source it stands.
    pub at: String,
    /// The unit of all columns but the first.
    pub unit: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Numbers.
    pub rows: Vec<Vec<f64>>,
}

impl Published {
    /// Reads them.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Published, String> {
        let published: Published =
            toml::from_str(text).map_err(|error| format!("published.toml: {error}"))?;
        for table in &published.tables {
            if published.source.is_empty() {
                return Err(format!("published.toml: {} has no source", table.id));
            }
            if let Some(row) = table.rows.iter().find(|row| row.len() != table.columns.len()) {
                return Err(format!("published.toml: {}: {row:?} has not a number in each column", table.id));
            }
        }
        Ok(published)
    }

    /// The table of this name.
    ///
    /// # Panics
    /// There is none: the experiment's own file is wrong.
    #[must_use]
    pub fn table(&self, id: &str) -> &Table {
        self.tables
            .iter()
            .find(|table| table.id == id)
            .unwrap_or_else(|| panic!("published.toml has no table {id}"))
    }
}

impl Table {
    /// The number of this column where the first one has this value.
    #[must_use]
    pub fn value(&self, first: f64, column: usize) -> Option<f64> {
        self.rows.iter().find(|row| row[0] == first)?.get(column).copied()
    }

    /// Pairs of the first column and another one.
    #[must_use]
    pub fn pairs(&self, column: usize) -> Vec<(f64, f64)> {
        self.rows.iter().filter_map(|row| Some((row[0], *row.get(column)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "[[table]]\nid = 'a'\ntitle = 't'\nat = '1'\nunit = 'ms'\ncolumns = ['x', 'y']\nrows = [[1, 2.5]]\n";

    #[test]
    fn figures_need_a_source_and_full_rows() {
        let good = Published::parse(&format!("source = 's'\n{TABLE}")).expect("good");
        assert_eq!((good.table("a").value(1.0, 1), good.table("a").value(2.0, 1)), (Some(2.5), None));
        assert_eq!(good.table("a").pairs(1), [(1.0, 2.5)]);
        assert!(Published::parse(TABLE).expect_err("no source").contains("a has no source"));
        let short = format!("source = 's'\n{}", TABLE.replace("[1, 2.5]", "[1]"));
        assert!(Published::parse(&short).expect_err("a short row").contains("in each column"));
        assert!(Published::parse("").expect("nothing is published").tables.is_empty());
    }
}
