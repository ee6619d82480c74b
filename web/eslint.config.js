import tseslint from "typescript-eslint";

export default tseslint.config(...tseslint.configs.strictTypeChecked, {
  languageOptions: {parserOptions: {projectService: true, tsconfigRootDir: import.meta.dirname}},
  rules: {
    // An index that was just counted, or a key that was just set, is there.
    "@typescript-eslint/no-non-null-assertion": "off",
    "@typescript-eslint/restrict-template-expressions": ["error", {allowNumber: true}],
    "@typescript-eslint/no-unused-vars": ["error", {varsIgnorePattern: "^_", argsIgnorePattern: "^_"}],
    "@typescript-eslint/no-confusing-void-expression": "off",
  },
});
