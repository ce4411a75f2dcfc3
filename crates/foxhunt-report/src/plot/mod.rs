//! A small plot writer: lines, bands, areas, marks and heat cells as one inline SVG inside an HTML figure.
//!
//! The SVG holds shapes only and stretches with the page; axis labels are HTML beside it, so text keeps its size
//! on a narrow screen. Colours are classes of the style sheet, so light and dark need one drawing. Which
//! series exist and what they mean is `charts`' business.

pub mod sample;
pub mod scale;

use std::fmt::Write as _;

pub use scale::{Kind, Scale};

/// Width of the drawing in its own units; about a pixel each on a wide screen.
const WIDTH: f64 = 1000.0;
/// Height of the drawing in its own units.
const HEIGHT: f64 = 400.0;
/// Columns a series is thinned to.
const COLUMNS: usize = 480;
/// Most marks of one kind.
const MOST_MARKS: usize = 1500;

/// One entry of a legend.
#[derive(Clone, Debug)]
pub struct Key {
    /// Style class, for example `agent`.
    pub class: &'static str,
    /// How the key is drawn: `line`, `band`, `dot` or `square`.
    pub shape: &'static str,
    /// What it says.
    pub label: String,
}

/// A plot being drawn. Positions along x are fractions, 0 at the left and 1 at the right.
#[derive(Clone, Debug)]
pub struct Plot {
    id: String,
    title: String,
    note: String,
    alt: String,
    class: &'static str,
    scale: Scale,
    y_labels: Vec<(f64, String)>,
    x_labels: Vec<(f64, String)>,
    keys: Vec<Key>,
    shapes: String,
}

impl Plot {
    /// An empty plot. `format` writes the ticks of the vertical axis. `alt` tells a reader who cannot see it what
    /// it shows.
    #[must_use]
    pub fn new(id: &str, title: &str, scale: Scale, format: impl Fn(f64) -> String) -> Self {
        let ticks = scale.ticks();
        let y_labels = ticks.iter().filter_map(|t| Some((scale.place(*t)?, format(*t)))).collect();
        Self {
            id: id.into(),
            title: title.into(),
            note: String::new(),
            alt: String::new(),
            class: "",
            scale,
            y_labels,
            x_labels: Vec::new(),
            keys: Vec::new(),
            shapes: String::new(),
        }
    }

    /// A line under the title: units and what to know.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The text for those who cannot see the drawing.
    #[must_use]
    pub fn alt(mut self, alt: impl Into<String>) -> Self {
        self.alt = alt.into();
        self
    }

    /// `short` makes a plot of less height.
    #[must_use]
    pub fn class(mut self, class: &'static str) -> Self {
        self.class = class;
        self
    }

    /// The labels of the horizontal axis.
    #[must_use]
    pub fn x_labels(mut self, labels: Vec<(f64, String)>) -> Self {
        self.x_labels = labels;
        self
    }

    /// Replaces the labels of the vertical axis; positions run from 0 at the top to 1 at the bottom.
    #[must_use]
    pub fn y_labels(mut self, labels: Vec<(f64, String)>) -> Self {
        self.y_labels = labels;
        self
    }

    /// Adds a legend entry.
    pub fn key(&mut self, class: &'static str, shape: &'static str, label: impl Into<String>) {
        self.keys.push(Key { class, shape, label: label.into() });
    }

    /// A line through every finite value, thinned per pixel column; a gap in the values is bridged.
    pub fn line(&mut self, class: &str, values: &[f64]) {
        let path = self.path(values, &sample::min_max(values, COLUMNS));
        if !path.is_empty() {
            let _ = write!(self.shapes, r#"<path class="line {class}" d="{path}"/>"#);
        }
    }

    /// A line through points at given positions along x, for series that are not one value a bar.
    pub fn line_at(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for &(x, value) in points {
            if let Some(y) = self.scale.place(value) {
                point(&mut path, x, y);
            }
        }
        if points.len() == 1 {
            path.push_str("h0");
        }
        if !path.is_empty() {
            let _ = write!(self.shapes, r#"<path class="line {class}" d="{path}"/>"#);
        }
    }

    /// The area between a line and `base`.
    pub fn area(&mut self, class: &str, values: &[f64], base: f64) {
        let chosen = sample::min_max(values, COLUMNS);
        let path = self.path(values, &chosen);
        let (Some(first), Some(last), Some(base)) = (chosen.first(), chosen.last(), self.scale.place(base))
        else {
            return;
        };
        let (left, right, base) = (across(*first, values.len()), across(*last, values.len()), base * HEIGHT);
        let (left, right) = (left * WIDTH, right * WIDTH);
        let _ = write!(
            self.shapes,
            r#"<path class="area {class}" d="{path}L{right:.1} {base:.1}L{left:.1} {base:.1}Z"/>"#
        );
    }

    /// The area between two series of equal length.
    pub fn band(&mut self, class: &str, low: &[f64], high: &[f64]) {
        let (below, above) = (sample::min_max(low, COLUMNS), sample::min_max(high, COLUMNS));
        let mut path = self.path(high, &above);
        for &i in below.iter().rev() {
            if let Some(y) = self.scale.place(low[i]) {
                let _ = write!(path, "L{:.1} {:.1}", across(i, low.len()) * WIDTH, y * HEIGHT);
            }
        }
        if !path.is_empty() {
            let _ = write!(self.shapes, r#"<path class="area {class}" d="{path}Z"/>"#);
        }
    }

    /// A horizontal rule at `value`.
    pub fn rule(&mut self, class: &str, value: f64) {
        if let Some(y) = self.scale.place(value) {
            let _ = write!(self.shapes, r#"<path class="rule {class}" d="M0 {:.1}H{WIDTH}"/>"#, y * HEIGHT);
        }
    }

    /// Marks at (index among `len` bars, value); those that would cover each other are drawn once. The class
    /// decides the form (round caps are dots, square caps are squares). Returns how many are drawn.
    pub fn marks(&mut self, class: &str, points: &[(usize, f64)], len: usize) -> usize {
        let mut cells = std::collections::BTreeSet::new();
        let mut path = String::new();
        for &(index, value) in points {
            let Some(y) = self.scale.place(value) else { continue };
            let (x, y) = (across(index, len) * WIDTH, y * HEIGHT);
            if cells.insert(((x / 3.0) as i32, (y / 4.0) as i32)) {
                let _ = write!(path, "M{x:.1} {y:.1}h0");
                if cells.len() >= MOST_MARKS {
                    break;
                }
            }
        }
        if !path.is_empty() {
            let _ = write!(self.shapes, r#"<path class="mark {class}" d="{path}"/>"#);
        }
        cells.len()
    }

    /// A heat map: `rows` from the top, each with equally many shares in 0..=1.
    pub fn cells(&mut self, class: &str, rows: &[Vec<f64>]) {
        let height = HEIGHT / rows.len().max(1) as f64;
        for (r, row) in rows.iter().enumerate() {
            let width = WIDTH / row.len().max(1) as f64;
            let mut c = 0;
            while c < row.len() {
                // Eight steps of shade are what an eye tells apart, and let equal neighbours share one shape.
                let shade = (row[c].clamp(0.0, 1.0) * 8.0).ceil() as u32;
                let run =
                    row[c..].iter().take_while(|s| (s.clamp(0.0, 1.0) * 8.0).ceil() as u32 == shade).count();
                let run = run.max(1);
                if shade > 0 {
                    let (x, y) = (c as f64 * width, r as f64 * height + 1.0);
                    let _ = write!(
                        self.shapes,
                        r#"<rect class="cell {class} s{shade}" x="{x:.1}" y="{y:.1}" width="{:.1}" height="{:.1}"/>"#,
                        run as f64 * width,
                        height - 2.0
                    );
                }
                c += run;
            }
        }
    }

    /// The figure as HTML; every text is escaped.
    #[must_use]
    pub fn html(&self) -> String {
        let mut out = String::with_capacity(self.shapes.len() + 2048);
        let (id, title) = (escape(&self.id), escape(&self.title));
        let _ = write!(out, r#"<figure class="plot {}" id="{id}"><figcaption><b>{title}</b>"#, self.class);
        if !self.note.is_empty() {
            let _ = write!(out, "<span>{}</span>", escape(&self.note));
        }
        out.push_str("</figcaption>");
        if !self.keys.is_empty() {
            out.push_str(r#"<ul class="legend">"#);
            for Key { class, shape, label } in &self.keys {
                let _ = write!(out, r#"<li><i class="key {shape} {class}"></i>{}</li>"#, escape(label));
            }
            out.push_str("</ul>");
        }
        out.push_str(r#"<div class="frame"><div class="y" aria-hidden="true">"#);
        for (place, label) in &self.y_labels {
            let _ = write!(out, r#"<span style="top:{:.2}%">{}</span>"#, place * 100.0, escape(label));
        }
        let _ = write!(
            out,
            r#"</div><svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{title}. {}">"#,
            escape(&self.alt)
        );
        let mut grid = String::new();
        for (place, _) in &self.y_labels {
            let _ = write!(grid, "M0 {:.1}H{WIDTH}", place * HEIGHT);
        }
        for (place, _) in &self.x_labels {
            let _ = write!(grid, "M{:.1} 0V{HEIGHT}", place * WIDTH);
        }
        let _ = write!(out, r#"<path class="grid" d="{grid}"/>{}</svg>"#, self.shapes);
        out.push_str(r#"<div class="x" aria-hidden="true">"#);
        for (i, (place, label)) in self.x_labels.iter().enumerate() {
            let edge = match *place {
                x if x < 0.06 => "first",
                x if x > 0.95 => "last",
                x if x > 0.85 => "late",
                _ => "",
            };
            let odd = if i % 2 == 1 { "odd" } else { "" };
            let _ = write!(
                out,
                r#"<span class="{edge} {odd}" style="left:{:.2}%">{}</span>"#,
                place * 100.0,
                escape(label)
            );
        }
        out.push_str("</div></div></figure>");
        out
    }

    fn path(&self, values: &[f64], chosen: &[usize]) -> String {
        let mut path = String::with_capacity(chosen.len() * 12);
        for &i in chosen {
            if let Some(y) = self.scale.place(values[i]) {
                point(&mut path, across(i, values.len()), y);
            }
        }
        path
    }
}

fn point(path: &mut String, x: f64, y: f64) {
    let letter = if path.is_empty() { 'M' } else { 'L' };
    let _ = write!(path, "{letter}{:.1} {:.1}", x * WIDTH, y * HEIGHT);
}

/// Where entry `index` of `len` lies along x: the first at 0, the last at 1.
#[must_use]
pub fn across(index: usize, len: usize) -> f64 {
    if len < 2 { 0.0 } else { index as f64 / (len - 1) as f64 }
}

/// HTML text and attribute escaping.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number;

    #[test]
    fn text_is_escaped_and_nan_is_not_drawn() {
        let scale = Scale::fit([0.0, 1.0], None, Kind::Linear);
        let mut plot = Plot::new("p", "<b>&", scale, |v| number::grouped(v, 1)).note("a<b").alt("\"quoted\"");
        plot.key("agent", "line", "x>y");
        plot.line("agent", &[0.0, f64::NAN, f64::INFINITY, 1.0]);
        plot.area("agent", &[f64::NAN, f64::NAN], 0.0);
        plot.band("random", &[f64::NAN], &[f64::NAN]);
        plot.marks("buy", &[(0, f64::NAN), (1, 0.5)], 2);
        let html = plot.html();
        assert!(
            html.contains("&lt;b&gt;&amp;") && html.contains("a&lt;b") && html.contains("&quot;quoted&quot;")
        );
        assert!(html.contains("x&gt;y"));
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }

    #[test]
    fn a_million_points_stay_small() {
        let values: Vec<f64> = (0..1_000_000).map(|i| f64::from(i).sin()).collect();
        let mut plot =
            Plot::new("p", "t", Scale::fit(values.iter().copied(), None, Kind::Linear), |v| v.to_string());
        plot.line("agent", &values);
        let everywhere: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
        assert!(plot.marks("buy", &everywhere, values.len()) <= MOST_MARKS);
        assert!(plot.html().len() < 40_000, "{}", plot.html().len());
    }

    #[test]
    fn equal_cells_share_a_shape() {
        let mut plot = Plot::new("p", "t", Scale::fit([0.0, 1.0], None, Kind::Linear), |v| v.to_string());
        plot.cells("heat", &[vec![0.5; 100], vec![0.0; 100]]);
        assert_eq!(plot.shapes.matches("<rect").count(), 1);
    }
}
