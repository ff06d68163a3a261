#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "chat/chat_template.h"

// Runs templates for tests in other languages: render_template. Reads JSON lines {"template": ..., "variables": {...}}
// from standard input and writes {"text": ...} or {"error": ...} for each.
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::ordered_json request = nlohmann::ordered_json::parse(line);
    nlohmann::json reply;
    try {
      const focus::ChatTemplate chat(request.at("template").get<std::string>(), nlohmann::ordered_json::object());
      reply["text"] = chat.render(request.at("variables"));
    } catch (const std::exception& e) {
      reply["error"] = e.what();
    }
    std::cout << reply.dump() << '\n';
  }
  return 0;
}
