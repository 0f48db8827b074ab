// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page: HTML with its style and its pictures inside, which needs no network and
//! no script, and prints well.

use std::fmt::Write as _;

use anyhow::Result;

use crate::chart;
use crate::environment;
use crate::figure::{Compared, Figure, Recipe};
use crate::headline;
use crate::own;
use crate::paper;
use crate::rows::Rows;

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub fn html(rows: &Rows) -> Result<String> {
    let mut body = String::new();
    opening(&mut body, rows)?;
    let mut contents = String::new();
    let mut chapters = String::new();
    let papers = paper::all();
    for paper in &papers {
        let chapter = Chapter {
            name: paper.name,
            about: paper.about,
            has_paper: true,
        };
        chapter.write(&paper.figures, rows, &mut contents, &mut chapters)?;
    }
    let chapter = Chapter {
        name: "Other pictures",
        about: "What no paper has as a figure.",
        has_paper: false,
    };
    chapter.write(&own::figures(), rows, &mut contents, &mut chapters)?;
    write!(body, "<nav><h2>Contents</h2>{contents}</nav>{chapters}")?;
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Weft: results</title><style>{STYLE}</style></head>\n<body>{body}</body></html>\n"
    ))
}

/// Title, machine, and the few results that matter most.
fn opening(page: &mut String, rows: &Rows) -> Result<()> {
    write!(page, "<h1>Weft: results</h1><table class=\"machine\">")?;
    for property in environment::properties(rows) {
        let values = escape(&property.values.join(", "));
        write!(page, "<tr><th>{}</th><td>{values}</td></tr>", property.name)?;
    }
    write!(page, "</table>")?;
    if !environment::is_of_one_commit(rows) {
        write!(
            page,
            "<p class=\"warning\">These results are not all of one commit without changes: they \
             may not be compared with one another.</p>"
        )?;
    }
    if !environment::is_of_one_machine(rows) {
        write!(
            page,
            "<p class=\"warning\">These benchmarks were not all run on the same machine: their \
             results may not be compared with one another.</p>"
        )?;
    }
    let headlines = headline::all(rows);
    if !headlines.is_empty() {
        write!(
            page,
            "<table class=\"numbers\"><tr><th>median</th><th>without Weft</th><th>with it</th>\
             <th>times as good</th></tr>"
        )?;
        for one in headlines {
            let cells = [one.what, one.without, one.with, one.ratio];
            row(page, &cells)?;
        }
        write!(page, "</table>")?;
    }
    Ok(())
}

/// Some figures under one title.
struct Chapter {
    name: &'static str,
    about: &'static str,
    /// Whether there are a paper's numbers.
    has_paper: bool,
}

impl Chapter {
    fn write(
        &self,
        recipes: &[Recipe],
        rows: &Rows,
        contents: &mut String,
        page: &mut String,
    ) -> Result<()> {
        write!(contents, "<p>{}: ", escape(self.name))?;
        write!(
            page,
            "<h2>{}</h2><p>{}</p>",
            escape(self.name),
            escape(self.about)
        )?;
        for recipe in recipes {
            let figure = Figure::make(*recipe, rows);
            let class = if figure.has_results() {
                ""
            } else {
                " class=\"none\""
            };
            let title = recipe.title.split(':').next().unwrap_or(recipe.title);
            write!(
                contents,
                "<a{class} href=\"#{}\">{}</a> ",
                recipe.id,
                escape(title)
            )?;
            self.figure(&figure, page)?;
        }
        write!(contents, "</p>")?;
        Ok(())
    }

    fn figure(&self, figure: &Figure, page: &mut String) -> Result<()> {
        let Recipe {
            id, title, limits, ..
        } = figure.recipe;
        write!(page, "<section id=\"{id}\"><h3>{}</h3>", escape(title))?;
        if let Some(why) = figure.why_empty() {
            write!(page, "<p class=\"none\">{}</p>", escape(&why))?;
        }
        self.numbers(&figure.compared, page)?;
        for chart in &figure.charts {
            write!(
                page,
                "<figure>{}</figure>",
                chart::svg(std::slice::from_ref(chart))?
            )?;
        }
        write!(page, "<p class=\"limits\">{}</p></section>", escape(limits))?;
        Ok(())
    }

    /// A paper's numbers beside ours. Where a paper has none, only what we have.
    fn numbers(&self, compared: &[Compared], page: &mut String) -> Result<()> {
        let shown = |one: &&Compared| one.here.is_some() || !one.paper.is_empty();
        let shown: Vec<_> = compared.iter().filter(shown).collect();
        if shown.is_empty() {
            return Ok(());
        }
        let paper = if self.has_paper { "<th>paper</th>" } else { "" };
        write!(
            page,
            "<table class=\"numbers\"><tr><th></th>{paper}<th>here</th></tr>"
        )?;
        for one in shown {
            let here = one
                .here
                .clone()
                .unwrap_or_else(|| "not measured".to_owned());
            match self.has_paper {
                true => row(page, &[one.what.clone(), one.paper.clone(), here])?,
                false => row(page, &[one.what.clone(), here])?,
            }
        }
        write!(page, "</table>")?;
        Ok(())
    }
}

fn row(page: &mut String, cells: &[String]) -> Result<()> {
    write!(page, "<tr>")?;
    for cell in cells {
        write!(page, "<td>{}</td>", escape(cell))?;
    }
    write!(page, "</tr>")?;
    Ok(())
}

/// Text as HTML has it.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_there_or_says_why_not() {
        let page = html(&Rows::default()).unwrap();
        let mut count = 0;
        for recipe in crate::recipes() {
            assert!(page.contains(&format!("<section id=\"{}\">", recipe.id)));
            assert!(page.contains(&format!("href=\"#{}\"", recipe.id)));
            count += 1;
        }
        let why = "<p class=\"none\">";
        assert_eq!(page.matches(why).count(), count);
    }

    #[test]
    fn results_of_two_machines_are_warned_of() {
        let warned = |cpus: u8| {
            let text = format!(
                "{{\"bench\":\"tail\",\"commit\":\"a\",\"cpus\":2}}\n\
                 {{\"bench\":\"mr\",\"commit\":\"a\",\"cpus\":{cpus}}}"
            );
            let page = html(&Rows::parse(&text).unwrap()).unwrap();
            page.contains("not all run on the same machine")
        };
        assert!(warned(4) && !warned(2));
    }

    #[test]
    fn nothing_is_fetched_and_nothing_runs() {
        let rows = Rows::parse(
            r#"{"bench":"tail","system":"weft","transport":"dc","commit":"<b>&\"","lat_us_p999":60,"lat_us_cdf":[[50,20],[99,50]]}"#,
        );
        let page = html(&rows.unwrap()).unwrap();
        assert!(page.contains("<figure><svg ") && page.contains("&lt;b&gt;&amp;&quot;"));
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for word in [
            "http:", "https:", "<script", "@import", "url(", " src=", "<link",
        ] {
            assert!(!outside.contains(word), "{word}");
        }
        // A paper's number stands there although ours lacks.
        assert!(page.contains("<td>22 M</td><td>not measured</td>"));
    }
}
