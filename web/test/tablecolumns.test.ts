import {expect, it} from "vitest";
import {columnsOf} from "../src/ui/tablecolumns";
import {layer} from "./layers";

const headings = (described: Parameters<typeof layer>[0]): string[] => columnsOf(layer(described)).map(({heading}) => heading);

it("has the key first, then the value and the figures, each once and with its unit", () => {
  const figures = [
    {field: "n", label: "things"},
    {field: "window_end", label: "to", unit: "time"},
    {field: "speed", label: "speed", unit: "m/s"},
  ];
  expect(headings({key: ["cell", "operating_day"], figures})).toEqual(["cell", "operating day", "things", "to", "speed, m/s"]);
});

it("leaves out parts of the key that the figures leave out, if they name others", () => {
  const pairs = {
    key: ["route", "operator", "vehicle", "other_operator", "other_vehicle"],
    value: {field: "change", label: "change"},
    figures: [
      {field: "other_vehicle", label: "other vehicle"},
      {field: "vehicle", label: "vehicle"},
      {field: "route", label: "line"},
      {field: "distance", label: "distance", unit: "m"},
    ],
  };
  expect(headings(pairs)).toEqual(["line", "vehicle", "other vehicle", "change", "distance, m"]);
});

it("ends with the eighth column", () => {
  const figures = [..."abcdefghij"].map((field) => ({field, label: field}));
  expect(headings({key: ["k"], value: null, figures})).toEqual(["k", ..."abcdefg"]);
});
