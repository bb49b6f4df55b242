// What the training examples show while they run: a progress bar, and the loss as a curve.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

/// A bar on stderr, redrawn a few times a second; nothing is printed where stderr is no terminal.
class Progress {
 public:
  explicit Progress(int steps) : steps_(steps), shown_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fprintf(stderr, "\r\033[K");
  }
  Progress(const Progress&) = delete;

  void step(int done, double loss) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    const int filled = 40 * done / std::max(steps_, 1);
    std::fprintf(stderr, "\r[%.*s%*s] %d of %d, loss %.4f\033[K", filled,
                 "========================================", 40 - filled, "", done, steps_, loss);
  }

 private:
  int steps_;
  bool shown_;
  std::chrono::steady_clock::time_point next_;
};

/// Values over steps, drawn into an SVG file with a logarithmic axis; `averaged` neighbours make one point.
class Curve {
 public:
  void add(double value) { values_.push_back(value); }

  void save(const std::string& path, const std::string& title, std::size_t averaged = 1) const {
    std::vector<double> y;
    for (std::size_t i = 0; i + averaged <= values_.size(); i += averaged) {
      double sum = 0;
      for (std::size_t k = 0; k < averaged; ++k) sum += values_[i + k];
      y.push_back(std::log10(std::max(sum / static_cast<double>(averaged), 1e-12)));
    }
    if (y.empty()) return;
    const auto [least, most] = std::minmax_element(y.begin(), y.end());
    const double low = std::floor(*least * 2) / 2, high = std::max(std::ceil(*most * 2) / 2, low + 0.5);
    const auto place = [&](double value) { return 340 - 300 * (value - low) / (high - low); };
    std::ofstream out(path);
    out << R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 380" font-family="sans-serif" )"
        << R"(font-size="12"><rect width="640" height="380" fill="white"/><text x="60" y="24">)" << title
        << "</text>\n";
    for (double tick = low; tick <= high + 1e-9; tick += 0.5) {
      char label[32];
      std::snprintf(label, sizeof label, "%.2g", std::pow(10, tick));
      out << R"(<path stroke="#ccc" d="M60 )" << place(tick) << R"(H620"/><text x="8" y=")" << place(tick) + 4
          << "\">" << label << "</text>\n";
    }
    out << R"(<path fill="none" stroke="#06c" d="M)";
    for (std::size_t i = 0; i < y.size(); ++i)
      out << (i ? " L" : "")
          << 60 + 560 * static_cast<double>(i) / static_cast<double>(std::max<std::size_t>(y.size() - 1, 1))
          << ' ' << place(y[i]);
    out << "\"/><text x=\"60\" y=\"364\">0</text><text x=\"580\" y=\"364\">" << values_.size()
        << "</text></svg>\n";
  }

 private:
  std::vector<double> values_;
};
