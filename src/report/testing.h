#pragma once

#include <string>

#include "report/judging.h"

namespace focus {

/// A table for tests: rows a (5.0 in every window 0.1 nats below b), b and absent (only the paper's figure).
inline Table small_table() {
  Table table;
  table.name = "t0";
  table.title = "A table";
  table.source = "table 0";
  RecipeColumn ppl;
  ppl.key = "ppl";
  ppl.title = "PPL";
  ppl.log = true;
  ppl.best = Better::kLow;
  RecipeColumn pairs;
  pairs.key = "pairs";
  pairs.title = "pairs";
  pairs.percent = true;
  pairs.digits = 1;
  table.columns = {ppl, pairs};
  const auto add = [&](const char* id) -> TableRow& {
    TableRow row;
    row.recipe.id = id;
    row.recipe.title = std::string("row ") + id;
    table.rows.push_back(row);
    return table.rows.back();
  };
  const auto cell = [](double nats) {
    Cell made;
    made.value = std::exp(nats);
    made.repetitions = {made.value};
    made.samples = {nats - 0.3, nats + 0.1, nats + 0.2};
    estimate_error(made, true);
    return made;
  };
  Cell half;
  half.value = 0.5;
  half.repetitions = {0.5};
  half.exact = true;
  estimate_error(half, false);
  TableRow& a = add("a");
  a.cells["ppl"] = cell(std::log(5.0));
  a.cells["pairs"] = half;
  a.recipe.paper["ppl"] = 4.25;
  add("b").cells["ppl"] = cell(std::log(5.0) + 0.1);
  TableRow& absent = add("absent");
  absent.recipe.paper["ppl"] = 3;
  absent.missing = "needs --set x=...";
  return table;
}

}  // namespace focus
