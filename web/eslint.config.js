import tseslint from "typescript-eslint";

export default tseslint.config(...tseslint.configs.recommendedTypeChecked, {
  languageOptions: {parserOptions: {projectService: true, tsconfigRootDir: import.meta.dirname}},
  rules: {
    "@typescript-eslint/no-unused-vars": ["error", {varsIgnorePattern: "^_", argsIgnorePattern: "^_"}],
    // Fields of results are plain JSON, and mostly text and numbers.
    "@typescript-eslint/no-base-to-string": "off",
  },
});
